package data

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// Options say what a dataset is made of. Text, Match, Holdout and LimitBytes are those of the job file.
type Options struct {
	// Text is a file or a folder; $NAME and ${NAME} are replaced by variables of the environment.
	Text string
	// Match is a pattern for the names of files, as in path.Match; empty matches all.
	Match string
	// Holdout is the share of the text that is kept from training, in [0, 1).
	Holdout float64
	// LimitBytes, if not 0, is the most text that is read.
	LimitBytes int64

	// Tokenizer turns text into tokens; nil stands for Bytes.
	Tokenizer Tokenizer
	// Context is the number of input tokens of a window.
	Context int
	// Held is the number of sequences of an evaluation; 0: none.
	Held int
	// Seed is that of the order of the samples.
	Seed uint64
}

// Dataset holds the tokens of a text in memory. It is immutable and safe for concurrent use.
type Dataset struct {
	tokenizer   Tokenizer
	context     int
	stats       Stats
	train, held column
	sampler     Sampler
	heldWindows int64
}

// Stats are the sizes of a dataset.
type Stats struct {
	// Files that were read, and files that were skipped because they are empty or contain a zero byte.
	Files, Skipped int
	// Bytes of text, without separators.
	Bytes int64
	// Tokens for training and held out, with separators.
	TrainTokens, HeldTokens int64
	// Windows are the samples of an epoch; HeldWindows the sequences that the held-out text has
	// room for.
	Windows, HeldWindows int64
	// SHA256 is the hash of all documents and of where they are cut for training and evaluation, in hexadecimal.
	SHA256 string
}

// Open reads a text and turns it into tokens. The error is one line that names what was given and
// what is legal.
func Open(o Options) (*Dataset, error) {
	if o.Context < 1 {
		return nil, fmt.Errorf("model.context is %d; legal is 1 and more", o.Context)
	}
	if o.Held < 0 {
		return nil, fmt.Errorf("train.evaluate.batch is %d; legal is 0 and more", o.Held)
	}
	if o.Tokenizer == nil {
		o.Tokenizer = Bytes
	}
	text, err := OpenText(o)
	if err != nil {
		return nil, err
	}
	d := &Dataset{tokenizer: o.Tokenizer, context: o.Context}
	size, room := o.Tokenizer.Size(), text.Bytes()+int64(text.Files())
	d.train, d.held = newColumn(size, room), newColumn(size, int64(float64(room)*o.Holdout))
	encode := encoder(o.Tokenizer)
	var tokens []int32
	var part []byte
	sum := sha256.New()
	add := func(c column, text []byte) {
		if len(text) > 0 {
			part = append(append(part[:0], text...), Separator)
			tokens = encode(tokens[:0], part)
			c.append(tokens)
		}
		// The length keeps documents, and their two parts, apart.
		sum.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(text))))
		sum.Write(text)
	}
	for doc, err := range text.Documents() {
		if err != nil {
			return nil, err
		}
		d.stats.Files++
		d.stats.Bytes += int64(len(doc.Train) + len(doc.Held))
		add(d.train, doc.Train)
		add(d.held, doc.Held)
	}
	d.stats.SHA256 = hex.EncodeToString(sum.Sum(nil))
	d.stats.Skipped = text.Files() - d.stats.Files
	if d.stats.Files == 0 {
		return nil, text.errorf("no text in it: its %d files are empty or contain zero bytes", text.Files())
	}
	return d, d.cut(o, text)
}

// cut counts the windows and refuses a text that is too short.
func (d *Dataset) cut(o Options, text *Text) error {
	d.stats.TrainTokens, d.stats.HeldTokens = d.train.len(), d.held.len()
	need := int64(o.Context) + 1
	if n := d.stats.TrainTokens; n < need {
		advice := "give more text"
		if n > 1 {
			advice = fmt.Sprintf("legal with this text is a context of 1 to %d", n-1)
		}
		return text.errorf("%d tokens for training are fewer than model.context + 1 = %d; %s", n, need, advice)
	}
	d.sampler = NewSampler(o.Seed, d.stats.TrainTokens, o.Context)
	d.stats.Windows = d.sampler.Windows()
	d.heldWindows = max(0, (d.stats.HeldTokens-1)/int64(o.Context))
	d.stats.HeldWindows = d.heldWindows
	if int64(o.Held) > d.heldWindows {
		return text.errorf("train.evaluate.batch asks for %d sequences of %d tokens, but the %d held-out tokens (data.holdout %v) have room for %d; legal is 0 to %d, or more text",
			o.Held, o.Context, d.stats.HeldTokens, o.Holdout, d.heldWindows, d.heldWindows)
	}
	return nil
}

// Stats are the sizes.
func (d *Dataset) Stats() Stats { return d.stats }

// Tokenizer is what turned the text into tokens.
func (d *Dataset) Tokenizer() Tokenizer { return d.tokenizer }

// Window writes the context+1 tokens of training sample i, i >= 0, counted over the whole run.
func (d *Dataset) Window(i int64, dst []int32) {
	d.check(dst)
	d.train.copy(dst, d.sampler.At(i))
}

// Held writes the context+1 tokens of held-out sequence j, 0 <= j < Stats().HeldWindows. The
// sequences do not overlap in their targets, and for every n the first n of them lie evenly over
// the held-out text.
func (d *Dataset) Held(j int, dst []int32) {
	d.check(dst)
	if j < 0 || int64(j) >= d.heldWindows {
		panic(fmt.Sprintf("data: held-out sequence %d of %d", j, d.heldWindows))
	}
	d.held.copy(dst, spread(int64(j), d.heldWindows)*int64(d.context))
}

func (d *Dataset) check(dst []int32) {
	if len(dst) != d.context+1 {
		panic(fmt.Sprintf("data: a window has %d tokens, not %d", d.context+1, len(dst)))
	}
}
