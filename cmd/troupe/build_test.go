package main

import (
	"runtime/debug"
	"slices"
	"testing"

	"github.com/troupe-train/troupe/plan"
)

// TestBuild: a program is called by the most exact that is known of it.
func TestBuild(t *testing.T) {
	of := func(version string, settings ...string) *debug.BuildInfo {
		info := &debug.BuildInfo{GoVersion: "go1.26", Main: debug.Module{Version: version}}
		for i := 0; i < len(settings); i += 2 {
			info.Settings = append(info.Settings, debug.BuildSetting{Key: settings[i], Value: settings[i+1]})
		}
		return info
	}
	for want, info := range map[string]*debug.BuildInfo{
		"commit abc":                 of("v0.0.0-2026", "vcs.revision", "abc", "vcs.modified", "false"),
		"commit abc, with changes":   of("(devel)", "vcs.revision", "abc", "vcs.modified", "true"),
		"version v1.2.3":             of("v1.2.3"),
		"an unknown build by go1.26": of("(devel)"),
		"an unknown build":           nil,
	} {
		if got := build(info, info != nil); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestChaosSaysWhatIsIdle: settings that chaos makes no use of are named, and those by default are not.
func TestChaosSaysWhatIsIdle(t *testing.T) {
	usual := plan.Defaults().Supervisor
	if keys := idle(usual, usual); len(keys) > 0 {
		t.Errorf("%v", keys)
	}
	s := usual
	s.Restarts, s.Resumes, s.Mirror = 0, 9, false
	if keys := idle(s, usual); !slices.Equal(keys, []string{"restarts", "resumes"}) {
		t.Errorf("%v", keys)
	}
}
