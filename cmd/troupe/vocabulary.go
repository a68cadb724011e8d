package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/troupe-train/troupe/data"
)

func vocabularyCommand() *cobra.Command {
	var set []string
	var size int
	var out string
	var overwrite bool
	c := &cobra.Command{
		Use:   "vocabulary JOB.yaml --size N --out FILE",
		Short: "Train a BPE vocabulary on the text of a job",
		Long: "Vocabulary learns byte pairs (BPE) from the training text of a job and saves them. To use them, give\n" +
			"the file as model.vocab.",
		Example: "  troupe vocabulary examples/gosrc.yaml --size 2048 --out gosrc.vocab.json\n" +
			"  troupe train examples/gosrc.yaml --set model.vocab=gosrc.vocab.json",
		Args: takes("one job file"),
		RunE: func(c *cobra.Command, args []string) error {
			if out == "" {
				return usage(errors.New("--out is not given; it names the file to write"))
			}
			if err := data.CheckVocabularySize(size); err != nil {
				return usage(fmt.Errorf("--size: %w", err))
			}
			job, err := loadJob(args[0], set)
			if err != nil {
				return err
			}
			// Better now than after the training.
			if folder, err := os.Stat(filepath.Dir(out)); err != nil || !folder.IsDir() {
				return fmt.Errorf("--out %s: there is no folder %s", out, filepath.Dir(out))
			}
			if _, err := os.Stat(out); err == nil && !overwrite {
				return usage(fmt.Errorf("--out %s: there is such a file already; --overwrite replaces it", out))
			}
			v, err := data.TrainTokenizer(data.Options{
				Text: job.Data.Text, Match: job.Data.Match, Holdout: job.Data.Holdout, LimitBytes: job.Data.LimitBytes,
			}, size)
			if err != nil {
				return err
			}
			if err := v.Save(out); err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s: %d tokens\n", out, v.Size())
			return err
		},
	}
	f := c.Flags()
	f.StringArrayVar(&set, "set", nil, "set a key of the job; may be repeated")
	f.IntVar(&size, "size", 2048, "number of tokens, the 256 bytes included")
	f.StringVar(&out, "out", "", "file to write")
	f.BoolVar(&overwrite, "overwrite", false, "replace the file if it is there")
	return c
}
