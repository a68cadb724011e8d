package tests

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pages are what people read first.
var pages = []string{"README.md", "ARCHITECTURE.md", "DEPENDENCIES.md", "docs/*.md", "tests/TRACK_RECORD.md"}

var (
	link  = regexp.MustCompile(`\]\(([^)#:]+)\)`)
	block = regexp.MustCompile("(?s)```[a-z]*\n(.*?)```")
	flags = regexp.MustCompile(`--[a-z][a-z-]*`)
)

// TestPages: links lead to files, and commands are commands with flags and files that exist.
func TestPages(t *testing.T) {
	var paths []string
	for _, pattern := range pages {
		found, err := filepath.Glob("../" + pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v, %v", pattern, found, err)
		}
		paths = append(paths, found...)
	}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(b), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), m[1])); err != nil {
				t.Errorf("%s: link to %s: %v", path, m[1], err)
			}
		}
		for _, m := range block.FindAllStringSubmatch(string(b), -1) {
			for line := range strings.Lines(m[1]) {
				checkCommand(t, path, strings.TrimSpace(line))
			}
		}
	}
}

// checkCommand looks at a line of a block of commands. Lines that are none are passed over.
func checkCommand(t *testing.T, path, line string) {
	t.Helper()
	line, _, _ = strings.Cut(line, " #")
	words := strings.Fields(line)
	i := slices.IndexFunc(words, func(w string) bool {
		return w == "./cmd/troupe" || w == "./troupe" || w == "troupe"
	})
	if i < 0 || len(words) < i+2 || !isCommand(words[:i]) {
		return
	}
	var name []string
	for _, w := range words[i+1:] {
		if !regexp.MustCompile(`^[a-z]+$`).MatchString(w) {
			break
		}
		name = append(name, w)
	}
	p := start(t, "troupe", append(slices.Clone(name), "--help")...)
	if p.end() != 0 {
		t.Errorf("%s: %q: there is no command %q", path, line, name)
	}
	for _, flag := range flags.FindAllString(line, -1) {
		if !strings.Contains(p.out.String(), flag+" ") {
			t.Errorf("%s: %q: troupe %s has no %s", path, line, strings.Join(name, " "), flag)
		}
	}
	for _, w := range words {
		if strings.HasPrefix(w, "examples/") {
			if _, err := os.Stat("../" + w); err != nil {
				t.Errorf("%s: %q: %v", path, line, err)
			}
		}
	}
}

// isCommand says whether the words before the name of the program are those of a command line.
func isCommand(before []string) bool {
	line := strings.Join(before, " ")
	return line == "" || line == "go run" || regexp.MustCompile(`^([A-Z_]+=\S+ ?)+$`).MatchString(line)
}

// TestExamples: every program in examples runs by itself, in seconds.
func TestExamples(t *testing.T) {
	mains, err := filepath.Glob("../examples/*/main.go")
	if err != nil || len(mains) < 2 {
		t.Fatalf("%v, %v", mains, err)
	}
	ended := regexp.MustCompile(`weights [0-9a-f]{64}|step 40 of 40: loss [01]\.`)
	for _, path := range mains {
		name := filepath.Base(filepath.Dir(path))
		p := start(t, name)
		if code := p.end(); code != 0 || !ended.Match(p.last()) {
			t.Errorf("%s: exit status %d, %q\n%s", name, code, p.said, p.out.String())
		}
	}
}
