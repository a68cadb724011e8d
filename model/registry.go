package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Config is what a job file says about a model.
type Config struct {
	Layers, Width, Heads, Context, Vocab int
	Dropout                              float64
}

// Registry has the constructor of every kind of model that a job file can name.
var Registry = map[string]func(Config) (*Model, error){
	"gpt":   func(c Config) (*Model, error) { return GPT(GPTConfig(c)) },
	"llama": func(c Config) (*Model, error) { return Llama(LlamaConfig(c)) },
}

// Build makes a model of a kind of Registry.
func Build(kind string, c Config) (*Model, error) {
	build, ok := Registry[kind]
	if !ok {
		return nil, fmt.Errorf("model.kind: %q is not known; legal: %s", kind, strings.Join(Kinds(), ", "))
	}
	return build(c)
}

// Kinds are the names in Registry, sorted.
func Kinds() []string { return slices.Sorted(maps.Keys(Registry)) }
