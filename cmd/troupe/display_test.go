package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/troupe-train/troupe/supervisor"
)

func TestLines(t *testing.T) {
	for _, c := range []struct {
		writes []string
		want   []string
	}{
		{nil, nil},
		{[]string{"a\n"}, []string{"a"}},
		{[]string{"a", "b\nc", "", "\n\nd"}, []string{"ab", "c", "", "d"}},
		{[]string{"a\nb\n"}, []string{"a", "b"}},
	} {
		var got []string
		l := &lines{print: func(line string) { got = append(got, line) }}
		for _, w := range c.writes {
			if n, err := l.Write([]byte(w)); n != len(w) || err != nil {
				t.Errorf("%q: %d, %v", w, n, err)
			}
		}
		l.flush()
		l.flush()
		if !slices.Equal(got, c.want) {
			t.Errorf("%q: lines %q, want %q", c.writes, got, c.want)
		}
	}
}

// TestDisplay: lines that come from many sides at once stay whole, beside a progress bar and without one, and the
// bar is gone in the end.
func TestDisplay(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		var b bytes.Buffer
		d := &display{out: &b, err: &b, terminal: terminal}
		var all sync.WaitGroup
		for source := range 4 {
			all.Go(func() {
				for i := range 20 {
					d.line("node %d: line %d", source, i)
				}
			})
		}
		for i := range int64(20) {
			d.progress(supervisor.Progress{Step: &supervisor.StepDone{Step: i + 1, Of: 20, Loss: 3, Tokens: 100, Elapsed: time.Second}})
		}
		all.Wait()
		d.close()
		d.progress(supervisor.Progress{Evaluated: &supervisor.Point{Step: 20, Loss: 2.5}})
		got := b.String()
		for source := range 4 {
			for i := range 20 {
				if want := fmt.Sprintf("node %d: line %d\n", source, i); !strings.Contains(got, want) {
					t.Errorf("terminal %v: no line %q", terminal, want)
				}
			}
		}
		if want := "step 20: validation loss 2.5000\n"; !strings.HasSuffix(got, want) {
			t.Errorf("terminal %v: the end is %q", terminal, got[max(0, len(got)-100):])
		}
		last := "step 20/20  loss 3.0000"
		if terminal {
			last = "step 20/20  loss 3.000  100 tokens/s  0s left"
		}
		if !strings.Contains(got, last) || strings.Contains(got, "\x1b") != terminal {
			t.Errorf("terminal %v: %q in\n%q", terminal, last, got)
		}
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 5 << 20: "5.0 MiB", 3 << 40: "3.0 TiB"} {
		if got := size(n); got != want {
			t.Errorf("%d bytes are %q, want %q", n, got, want)
		}
	}
}

// TestFit: whatever the width of the terminal, the line of the progress bar is no longer, and says as much as it can.
func TestFit(t *testing.T) {
	words := []string{"step 123/1000000", "loss 5.123", "123456 tokens/s", "1h2m3s left"}
	for columns := 40; columns < 200; columns++ {
		var b bytes.Buffer
		text, width := fit(columns, words...)
		bar := progressbar.NewOptions64(1000000, progressbar.OptionSetWriter(&b), progressbar.OptionSetWidth(width), progressbar.OptionSetPredictTime(false),
			progressbar.OptionSetElapsedTime(false), progressbar.OptionSetTheme(progressbar.Theme{Saucer: "x", SaucerPadding: "-"}))
		bar.Describe(text)
		_ = bar.Set64(1000000)
		for _, line := range strings.FieldsFunc(b.String(), func(r rune) bool { return r == '\r' || r == '\n' }) {
			if len(line) > columns {
				t.Fatalf("%d columns: %d in %q", columns, len(line), line)
			}
		}
		if n := strings.Count(text, "  ") + 1; columns >= 44 && n < 2 || columns >= 110 && n != 4 || width > columns {
			t.Errorf("%d columns: %q, bar of %d", columns, text, width)
		}
	}
}

// TestValidationLine: a loss that is not of the end does not pretend to be.
func TestValidationLine(t *testing.T) {
	if got := validation(supervisor.Point{Step: 6, Loss: 2}, 6); got != "validation loss 2.0000 nats per token after step 6, the last" {
		t.Error(got)
	}
	if got := validation(supervisor.Point{Step: 4, Loss: 2}, 6); got != "validation loss 2.0000 nats per token after step 4; there was no evaluation after that, up to step 6" {
		t.Error(got)
	}
}
