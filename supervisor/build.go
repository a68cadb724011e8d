package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strings"

	"github.com/troupe-train/troupe/data"
	"github.com/troupe-train/troupe/model"
	"github.com/troupe-train/troupe/plan"
)

// Source is the text that a job trains on, in windows of context+1 tokens. data.Dataset is one.
// Its windows are a pure function of their numbers.
type Source interface {
	// Window writes training sample i, counted over the whole run.
	Window(i int64, dst []int32)
	// Held writes held-out sequence j.
	Held(j int, dst []int32)
}

// OpenTokenizer makes the tokenizer of a job. The error is a *plan.JobError for a word that is no path and no vocabulary.
func OpenTokenizer(job *plan.Job) (data.Tokenizer, error) {
	t, err := data.OpenTokenizer(job.Model.Vocab)
	if errors.Is(err, fs.ErrNotExist) && !strings.ContainsAny(job.Model.Vocab, "./$") {
		return nil, &plan.JobError{Where: "model.vocab", Problem: fmt.Sprintf("is %q, and there is no such file; \"bytes\" or the path of a saved vocabulary is legal", job.Model.Vocab)}
	}
	return t, err
}

// BuildModel makes the model that a job asks for, for a vocabulary of vocab tokens.
func BuildModel(job *plan.Job, vocab int) (*model.Model, error) {
	m := job.Model
	return model.Build(m.Kind, model.Config{
		Layers: m.Layers, Width: m.Width, Heads: m.Heads, Context: m.Context, Vocab: vocab, Dropout: m.Dropout,
	})
}

// OpenData reads the text of a job.
func OpenData(job *plan.Job, t data.Tokenizer) (*data.Dataset, error) {
	return data.Open(data.Options{
		Text: job.Data.Text, Match: job.Data.Match, Holdout: job.Data.Holdout, LimitBytes: job.Data.LimitBytes,
		Tokenizer: t, Context: job.Model.Context, Held: job.Train.Evaluate.Batch, Seed: job.Train.Seed,
	})
}

// budgets splits threads over actors that compute at the same time: as evenly as possible, and at
// least one each. threads 0 stands for all cores.
func budgets(threads, actors int) []int {
	if threads == 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	out := make([]int, actors)
	for i := range out {
		out[i] = max(1, (threads*(i+1))/actors-(threads*i)/actors)
	}
	return out
}

// checkVocab refuses a vocabulary with tokens that the model does not know.
func checkVocab(m *model.Model, t data.Tokenizer) error {
	if m.Vocab < t.Size() {
		return fmt.Errorf("the model has %d tokens and the vocabulary %d; the model needs at least as many", m.Vocab, t.Size())
	}
	return nil
}
