package tests

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/troupe-train/troupe/plan/fault"
)

// TestFaultPage: docs/faults.md has every fault, and each of its examples is one.
func TestFaultPage(t *testing.T) {
	b, err := os.ReadFile("../docs/faults.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	_, table, _ := strings.Cut(page, "| fault |")
	table, _, _ = strings.Cut(table, "\n\n")
	examples := map[fault.Kind]int{}
	for _, k := range fault.Kinds() {
		if !regexp.MustCompile("`" + k.String() + "[ `]").MatchString(table) {
			t.Errorf("the table has no %s", k)
		}
		for _, line := range regexp.MustCompile(`(?m)^(?:- |echo '- )?(`+k.String()+` [^'\n]* step \d[^'\n#]*)'?`).FindAllStringSubmatch(page, -1) {
			examples[k]++
			if f, err := fault.ParseLine(line[1]); err != nil || f.Kind != k {
				t.Errorf("%v, %v", f, err)
			}
		}
	}
	for _, k := range []fault.Kind{fault.Kill, fault.KillNode, fault.Partition, fault.JumpClock, fault.Drop} {
		if examples[k] == 0 {
			t.Errorf("no example of %s was found", k)
		}
	}
}
