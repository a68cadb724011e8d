// Package checkpoint stores the state of a run in a form that does not depend on the layout, so
// that any layout can go on where another has stopped.
//
//	err := checkpoint.Prepare(dir, checkpoint.Fresh)          // once, before anything starts
//	w, err := checkpoint.Create(dir, checkpoint.Meta{Step: 100, ...})
//	err = w.Add(0, []checkpoint.Piece{{Name: "block0.mlp.fc.weight", Kind: checkpoint.Weight, Lo: 4096, Data: x}, ...})
//	err = w.Commit()                                          // from here on it exists
//	err = checkpoint.Prune(dir, 3)
//
//	c, err := checkpoint.Open(dir)                            // the newest complete one, verified
//	err = c.Match(meta)                                       // is it of this job?
//	err = c.Read("block0.mlp.fc.weight", checkpoint.FirstMoment, lo, hi, dst)
//	err = c.AllRead()                                         // nothing was forgotten
//	c.Close()
//
// On disk:
//
//	step-00000100/manifest.json            what there is: parameters, files with sizes and hashes, job, tokenizer
//	step-00000100/shard-00000.safetensors  pieces, named kind/parameter[lo:hi]
//	step-00000150.tmp/                     one that is being written, or whose writer has died
//	journal.log                            the ledger of the run, which is not the business of this package
//
// Names with .replaced and .removed behind them are steps on their way out; see Prepare.
//
// Invariants:
//   - A folder step-N exists only complete: files are written and synced under step-N.tmp, the
//     manifest last; then the folder is synced and renamed, and the rename is synced.
//   - The pieces of a checkpoint cover every element of every parameter, for every kind, exactly
//     once.
//   - Open returns nothing that differs by one bit from what was committed.
//   - No error and no kill at any point changes or removes a complete checkpoint, except that Prune
//     and Overwrite remove what they are asked to.
package checkpoint
