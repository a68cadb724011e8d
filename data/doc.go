// Package data turns text files into the token windows that a run trains and evaluates on.
//
//	tokenizer, err := data.OpenTokenizer(job.Model.Vocab) // "bytes", or the file of a BPE vocabulary
//	set, err := data.Open(data.Options{
//		Text: "$GOROOT/src", Match: "*.go", Holdout: 0.05,
//		Tokenizer: tokenizer, Context: 256, Held: 64, Seed: 1,
//	})
//	window := make([]int32, 256+1)
//	set.Window(data.Sample(step, batch, row), window) // inputs window[:256], targets window[1:]
//	set.Held(j, window)                               // sequence j of an evaluation
//
// Invariants:
//   - What is held out depends on the text alone: not on the seed, the context, the batch or the
//     layout.
//   - Training sample i is a pure function of (text, tokenizer, context, seed, i). There is no
//     cursor to save: a run that resumes asks for the same numbers that an uninterrupted run asks for.
//   - Every epoch visits each of its windows exactly once.
//   - A text is read in the sorted order of its files, and every document ends with one zero byte.
package data
