package main

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/troupe-train/troupe/supervisor"
)

// display shows a run: a progress bar on a terminal, a line a step elsewhere, on standard error;
// and the result on standard output. Lines come from the run and from its nodes, at the same time.
type display struct {
	out      io.Writer
	json     bool
	terminal bool

	mu      sync.Mutex
	err     io.Writer
	bar     *progressbar.ProgressBar // nil before the first step, and where there is no terminal
	width   int                      // of the bar, in columns
	elapsed time.Duration            // of the last steps, smoothed
}

func newDisplay(c *cobra.Command, asJSON bool) *display {
	return &display{
		out:      c.OutOrStdout(),
		err:      c.ErrOrStderr(),
		json:     asJSON,
		terminal: terminal(c.ErrOrStderr()) != nil,
	}
}

func (d *display) progress(p supervisor.Progress) {
	switch {
	case p.Step != nil:
		d.step(p.Step)
	case p.Evaluated != nil:
		d.line("step %d: validation loss %.4f", p.Evaluated.Step, p.Evaluated.Loss)
	case p.Checkpoint != nil:
		d.line("step %d: checkpoint %s", p.Checkpoint.Step, p.Checkpoint.Path)
	case p.Decision != nil:
		d.line("decision: %s", plain(*p.Decision))
	case p.Recovered != nil:
		d.line("%s", *p.Recovered)
	case p.Note != nil:
		d.line("%s", plain(*p.Note))
	}
}

func (d *display) step(s *supervisor.StepDone) {
	if s.Skipped != "" {
		d.line("train step %d made no update: %s", s.Step-1, s.Skipped)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.elapsed == 0 {
		d.elapsed = s.Elapsed
	}
	d.elapsed += (s.Elapsed - d.elapsed) / 8
	rate := float64(s.Tokens) / d.elapsed.Seconds()
	left := (time.Duration(s.Of-s.Step) * d.elapsed).Round(time.Second)
	if !d.terminal {
		fmt.Fprintf(d.err, "step %d/%d  loss %.4f  norm %.3f  lr %.2e  %.0f tokens/s  %s left\n", s.Step, s.Of, s.Loss, s.GradNorm, s.LR, rate, left)
		return
	}
	text, width := fit(d.columns(), fmt.Sprintf("step %d/%d", s.Step, s.Of), fmt.Sprintf("loss %.3f", s.Loss), fmt.Sprintf("%.0f tokens/s", rate), fmt.Sprintf("%s left", left))
	if d.bar == nil || width != d.width {
		if d.bar != nil {
			_ = d.bar.Clear()
		}
		d.width = width
		d.bar = progressbar.NewOptions64(s.Of,
			progressbar.OptionSetWriter(d.err),
			progressbar.OptionSetWidth(width),
			progressbar.OptionSetPredictTime(false),
			progressbar.OptionSetElapsedTime(false),
			progressbar.OptionUseANSICodes(true),
			progressbar.OptionSetTheme(progressbar.Theme{Saucer: "█", SaucerPadding: "░", BarStart: "", BarEnd: ""}),
		)
	}
	d.bar.Describe(text)
	_ = d.bar.Set64(s.Step) // writing to a terminal that has gone is no reason to stop training
}

// columns is the width of the terminal; 80 if that cannot be known.
func (d *display) columns() int {
	if f := terminal(d.err); f != nil {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			return w
		}
	}
	return 80
}

// fit makes one line of at most columns columns of words, the most important first, and a bar: the bar is short where
// there is little room, and words that find none are left out. The bar puts 10 columns at most around itself.
func fit(columns int, words ...string) (text string, bar int) {
	const around = 10
	bar = 24
	if columns < 80 {
		bar = 6
	}
	for i, w := range words {
		if i > 0 && len(text)+len("  ")+len(w)+bar+around > columns {
			break
		}
		if i > 0 {
			text += "  "
		}
		text += w
	}
	return text + " ", bar
}

// line prints above the progress bar.
func (d *display) line(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bar != nil {
		_ = d.bar.Clear()
	}
	fmt.Fprintf(d.err, format+"\n", args...)
	if d.bar != nil {
		_ = d.bar.RenderBlank()
	}
}

// close takes the progress bar away: what follows is the result, or the error.
func (d *display) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bar != nil {
		_ = d.bar.Clear()
		d.bar = nil
	}
}

// finish prints the result, or passes the error on.
func (d *display) finish(r *supervisor.Result, err error) error {
	d.close()
	if err != nil {
		return err
	}
	if d.json {
		return json.NewEncoder(d.out).Encode(r)
	}
	fmt.Fprintf(d.out, "%s: %d steps", r.Job, r.Steps)
	if r.StepsRun > 0 {
		fmt.Fprintf(d.out, ", loss %.4f -> %.4f, %.0f tokens/s, bubble %.3f", *r.LossFirst, *r.LossLast, r.TokensPerSecond, r.Bubble)
	}
	fmt.Fprintln(d.out)
	if n := len(r.Validation); n > 0 {
		fmt.Fprintln(d.out, validation(r.Validation[n-1], r.Steps))
	}
	fmt.Fprintf(d.out, "weights sha256 %s\n", r.WeightsSHA256)
	if r.Checkpoint != "" {
		fmt.Fprintf(d.out, "checkpoint %s\n", r.Checkpoint)
	}
	switch {
	case r.Stopped && r.Checkpoint != "":
		fmt.Fprintln(d.out, "stopped before the last step; go on with --resume")
	case r.Stopped:
		fmt.Fprintln(d.out, "stopped before the last step; save.dir is not set, so nothing is kept")
	}
	return nil
}

// validation is the line of the last evaluation in a run that ended at step end.
func validation(p supervisor.Point, end int64) string {
	when := fmt.Sprintf("after step %d, the last", p.Step)
	if p.Step < end {
		when = fmt.Sprintf("after step %d; there was no evaluation after that, up to step %d", p.Step, end)
	}
	return fmt.Sprintf("validation loss %.4f nats per token %s", p.Loss, when)
}
