package checkpoint

import (
	"strings"
	"testing"
)

func TestMatch(t *testing.T) {
	m := tiny(1)
	same := tiny(2)
	same.Job, same.Tokenizer = "other", "other"
	must(t, m.Match(same))
	if m.Fingerprint() != same.Fingerprint() {
		t.Error("the fingerprint depends on what Match does not compare")
	}
	for _, c := range []struct {
		change func(m *Meta)
		want   string
	}{
		{func(m *Meta) { m.Parameters[0].Shape = []int{8, 4} }, "the checkpoint has embed.tokens [8 3], the job asks for [8 4]"},
		{func(m *Meta) { m.Parameters = append(m.Parameters, Parameter{"x", []int{2}}) }, "the checkpoint has no x [2], the job asks for it"},
		{func(m *Meta) { m.Parameters = m.Parameters[:2] }, "the checkpoint has head.bias [1], the job has no such parameter"},
		{func(m *Meta) { m.Optimizer = "sgd" }, "the checkpoint is of the optimizer adamw, the job asks for sgd"},
		{func(m *Meta) { m.Kinds = m.Kinds[:2] }, "the checkpoint holds [weight m v] of each parameter, the job asks for [weight m]"},
		{func(m *Meta) { m.Facts[0].Value = "2" }, "the checkpoint has train.seed 1, the job asks for 2"},
		{func(m *Meta) { m.Facts = nil }, "the checkpoint has train.seed 1, the job does not say"},
		{func(m *Meta) { m.Facts = append(m.Facts, Fact{"train.batch", "8"}) }, "does not say what its train.batch is, the job has 8"},
	} {
		want := tiny(1)
		c.change(&want)
		err := m.Match(want)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
		if m.Fingerprint() == want.Fingerprint() {
			t.Errorf("%q: the fingerprints are equal", c.want)
		}
	}
}
