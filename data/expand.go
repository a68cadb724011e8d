package data

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// expand replaces $NAME and ${NAME} in a path by variables of the environment. GOROOT is known
// even where the environment does not have it: it is that of the go command. key is
// the key of the job file that holds the path.
func expand(key, path string) (string, error) {
	var failed error
	expanded := os.Expand(path, func(name string) string {
		if v := os.Getenv(name); v != "" {
			return v
		}
		var err error
		if name == "GOROOT" {
			var root string
			if root, err = goRoot(); err == nil {
				return root
			}
		} else {
			err = fmt.Errorf("the variable $%s is not set", name)
		}
		if failed == nil {
			failed = err
		}
		return ""
	})
	if failed != nil {
		return "", fmt.Errorf("%s %q: %w", key, path, failed)
	}
	return expanded, nil
}

// goRoot asks the go command on the PATH. The toolchain is pinned to the local one, so that a
// go.mod in the working folder cannot make it download another.
func goRoot() (string, error) {
	const advice = "set GOROOT or give the folder itself"
	tool, err := exec.LookPath("go")
	if err != nil {
		return "", fmt.Errorf("the variable $GOROOT is not set and there is no go command on the PATH; %s", advice)
	}
	cmd := exec.Command(tool, "env", "GOROOT")
	cmd.Env = append(os.Environ(), "GOTOOLCHAIN=local")
	out, err := cmd.Output()
	root := strings.TrimSpace(string(out))
	if err != nil || !filepath.IsAbs(root) {
		return "", fmt.Errorf("the variable $GOROOT is not set and %s does not tell it (%q, %v); %s", tool+" env GOROOT", root, err, advice)
	}
	return root, nil
}
