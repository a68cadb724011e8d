package bench

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// table writes rows in columns, and notes below them. The first error is that of flush.
type table struct {
	out   io.Writer
	w     *tabwriter.Writer
	notes []string
	err   error
}

func newTable(out io.Writer, columns ...any) *table {
	t := &table{out: out, w: tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)}
	t.row(columns...)
	return t
}

func (t *table) row(cells ...any) {
	for _, c := range cells {
		if _, err := fmt.Fprintf(t.w, "%v\t", c); err != nil && t.err == nil {
			t.err = err
		}
	}
	if _, err := fmt.Fprintln(t.w); err != nil && t.err == nil {
		t.err = err
	}
}

func (t *table) note(format string, args ...any) {
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

func (t *table) flush() error {
	if t.err != nil {
		return t.err
	}
	if err := t.w.Flush(); err != nil {
		return err
	}
	for _, n := range t.notes {
		if _, err := fmt.Fprintln(t.out, n); err != nil {
			return err
		}
	}
	return nil
}

func milliseconds(seconds float64) string { return fmt.Sprintf("%.3f", 1e3*seconds) }
func oneDigit(v float64) string           { return fmt.Sprintf("%.1f", v) }

// known is a figure with one digit; one that is not known is a dash.
func known(v float64) string {
	if v == 0 {
		return "-"
	}
	return oneDigit(v)
}

func megabytes(bytes int64) string { return fmt.Sprintf("%.1f", float64(bytes)/1e6) }

// percent is a share; one that is not known is a dash.
func percent(share float64) string {
	if share == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", 100*share)
}
