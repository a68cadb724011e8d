package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/troupe-train/troupe/model"
)

// Kind is what is stored of a parameter.
type Kind string

const (
	// Weight is the master weight.
	Weight Kind = "weight"
	// FirstMoment and SecondMoment are the optimizer's.
	FirstMoment  Kind = "m"
	SecondMoment Kind = "v"
)

// Parameter is a tensor of the model.
type Parameter struct {
	Name  string `json:"name"`
	Shape []int  `json:"shape"`
}

// Len is the number of elements, and 0 for an impossible shape.
func (p Parameter) Len() int {
	n := 1
	for _, d := range p.Shape {
		if d <= 0 || n > math.MaxInt/d {
			return 0
		}
		n *= d
	}
	return n
}

func (p Parameter) String() string { return fmt.Sprintf("%s %v", p.Name, p.Shape) }

// Parameters are those of a model, in its canonical order.
func Parameters(m *model.Model) []Parameter {
	var ps []Parameter
	for _, p := range m.Params() {
		ps = append(ps, Parameter{Name: p.Name, Shape: slices.Clone(p.Shape)})
	}
	return ps
}

// Fact is something that must be equal for a run to be gone on with, such as "train.seed" and "1".
type Fact struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Meta says what a checkpoint is of.
type Meta struct {
	// Step is the number of committed steps.
	Step int64
	// Parameters in canonical order.
	Parameters []Parameter
	// Optimizer is its kind, such as "adamw".
	Optimizer string
	// Kinds are what is stored of every parameter.
	Kinds []Kind
	// Facts are what Match compares, besides the model and the optimizer.
	Facts []Fact
	// Job is the job file, and Tokenizer what data.Tokenizer.Marshal gives: with the two, a model
	// and its vocabulary can be built again from the checkpoint alone.
	Job, Tokenizer string
	// Commit, if it is known, says by which commit of the run's journal the last step became one of these weights, in the words of
	// who keeps that journal.
	Commit string
}

// Fingerprint is a hash of what Match compares.
func (m Meta) Fingerprint() string {
	text, err := json.Marshal(struct {
		Parameters []Parameter
		Optimizer  string
		Kinds      []Kind
		Facts      []Fact
	}{m.Parameters, m.Optimizer, m.Kinds, m.Facts})
	if err != nil {
		panic(err) // strings and integers
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// check refuses what cannot be stored.
func (m Meta) check() error {
	if m.Step < 0 {
		return fmt.Errorf("step %d; legal is 0 and more", m.Step)
	}
	if len(m.Parameters) == 0 || len(m.Kinds) == 0 {
		return fmt.Errorf("%d parameters of %d kinds; legal is at least one of each", len(m.Parameters), len(m.Kinds))
	}
	texts := []string{m.Optimizer, m.Job, m.Tokenizer}
	names := map[string]bool{}
	for _, p := range m.Parameters {
		if p.Name == "" || names[p.Name] || p.Len() == 0 {
			return fmt.Errorf("parameter %q %v has an empty or taken name, or an impossible shape", p.Name, p.Shape)
		}
		names[p.Name] = true
		texts = append(texts, p.Name)
	}
	kinds := map[Kind]bool{}
	for _, k := range m.Kinds {
		if k == "" || kinds[k] || strings.Contains(string(k), "/") {
			return fmt.Errorf("the kind %q is empty or taken, or has a slash in it", k)
		}
		kinds[k] = true
		texts = append(texts, string(k))
	}
	for _, f := range m.Facts {
		texts = append(texts, f.Key, f.Value)
	}
	for _, s := range texts {
		if !utf8.ValidString(s) {
			return fmt.Errorf("%.40q is not UTF-8", s)
		}
	}
	return nil
}

// Match says whether a run that is described by want can go on from a checkpoint of m. Step, Job
// and Tokenizer may differ. The error names the first difference, with both values.
func (m Meta) Match(want Meta) error {
	have := map[string]Parameter{}
	for _, p := range m.Parameters {
		have[p.Name] = p
	}
	for _, p := range want.Parameters {
		h, ok := have[p.Name]
		if !ok {
			return fmt.Errorf("the checkpoint has no %s, the job asks for it", p)
		}
		if !slices.Equal(h.Shape, p.Shape) {
			return fmt.Errorf("the checkpoint has %s, the job asks for %v", h, p.Shape)
		}
		delete(have, p.Name)
	}
	for _, p := range m.Parameters {
		if _, ok := have[p.Name]; ok {
			return fmt.Errorf("the checkpoint has %s, the job has no such parameter", p)
		}
	}
	if m.Optimizer != want.Optimizer {
		return fmt.Errorf("the checkpoint is of the optimizer %s, the job asks for %s", m.Optimizer, want.Optimizer)
	}
	if !slices.Equal(m.Kinds, want.Kinds) {
		return fmt.Errorf("the checkpoint holds %v of each parameter, the job asks for %v", m.Kinds, want.Kinds)
	}
	facts := map[string]string{}
	for _, f := range m.Facts {
		facts[f.Key] = f.Value
	}
	for _, f := range want.Facts {
		if v, ok := facts[f.Key]; !ok {
			return fmt.Errorf("the checkpoint does not say what its %s is, the job has %s", f.Key, f.Value)
		} else if v != f.Value {
			return fmt.Errorf("the checkpoint has %s %s, the job asks for %s", f.Key, v, f.Value)
		}
		delete(facts, f.Key)
	}
	for _, f := range m.Facts {
		if _, ok := facts[f.Key]; ok {
			return fmt.Errorf("the checkpoint has %s %s, the job does not say what it is", f.Key, f.Value)
		}
	}
	return nil
}
