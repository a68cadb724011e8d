package main

import "runtime/debug"

// build says what this program was built from, as exactly as is known: the commit of the source, or the version of the module.
func build(info *debug.BuildInfo, ok bool) string {
	if !ok {
		return "an unknown build"
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	switch v := info.Main.Version; {
	case settings["vcs.revision"] != "" && settings["vcs.modified"] == "true":
		return "commit " + settings["vcs.revision"] + ", with changes"
	case settings["vcs.revision"] != "":
		return "commit " + settings["vcs.revision"]
	case v != "" && v != "(devel)":
		return "version " + v
	case info.GoVersion != "":
		return "an unknown build by " + info.GoVersion
	}
	return "an unknown build"
}
