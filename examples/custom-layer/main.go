// Command custom-layer trains a GPT with a layer of its own, adapter.go, in a pipeline.
//
//	go run ./examples/custom-layer
package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/signal"

	"github.com/troupe-train/troupe/data"
	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/supervisor"
)

//go:embed job.yaml
var jobFile []byte

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "custom-layer:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	job, err := plan.Parse("job.yaml", jobFile)
	if err != nil {
		return err
	}
	gpt, err := supervisor.BuildModel(job, data.Bytes.Size())
	if err != nil {
		return err
	}
	m, err := withAdapters(gpt, 16)
	if err != nil {
		return err
	}
	result, err := supervisor.Run(ctx, job, supervisor.WithModel(m), supervisor.WithProgress(show))
	if err != nil {
		return err
	}
	fmt.Printf("%d parameters, %d steps, weights %s\n", result.Parameters, result.Steps, result.WeightsSHA256)
	return nil
}

func show(p supervisor.Progress) {
	switch {
	case p.Note != nil:
		fmt.Println(*p.Note)
	case p.Step != nil && p.Step.Step%10 == 0:
		fmt.Printf("step %d of %d: loss %.3f\n", p.Step.Step, p.Step.Of, p.Step.Loss)
	}
}
