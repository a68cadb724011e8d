package data

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// folder writes files, given by name and contents, under a new folder.
func folder(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func open(t testing.TB, o Options) *Dataset {
	t.Helper()
	d, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// all are the tokens of a column, as bytes.
func all(c column) string {
	tokens := make([]int32, c.len())
	c.copy(tokens, 0)
	text, _ := Bytes.Decode(nil, tokens)
	return string(text)
}

func TestOpenReadsFilesInSortedOrder(t *testing.T) {
	dir := folder(t, map[string]string{
		"b.go": "bb", "a/z.go": "zz", "a.go": "aa", "c.txt": "no", ".hidden.go": "no", ".git/x.go": "no",
		"empty.go": "", "binary.go": "a\x00b", "d.go/e.go": "ee",
	})
	if err := os.Symlink(filepath.Join(dir, "c.txt"), filepath.Join(dir, "link.go")); err != nil {
		t.Skip(err)
	}
	if err := os.Symlink(filepath.Join(dir, "none"), filepath.Join(dir, "dangling.go")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, filepath.Join(dir, "loop.go")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ match, want string }{
		{"*.go", "aa\x00zz\x00bb\x00ee\x00no\x00"},
		{"a/*", "zz\x00"},
		{"*.txt", "no\x00"},
		{"", "aa\x00zz\x00bb\x00no\x00ee\x00no\x00"},
	} {
		d := open(t, Options{Text: dir, Match: c.match, Context: 1})
		if got := all(d.train); got != c.want {
			t.Errorf("match %q reads %q, want %q", c.match, got, c.want)
		}
	}
	d := open(t, Options{Text: dir, Match: "*.go", Context: 2})
	want := Stats{Files: 5, Skipped: 2, Bytes: 10, TrainTokens: 15, Windows: 6, SHA256: d.Stats().SHA256}
	if d.Stats() != want {
		t.Errorf("stats %+v, want %+v", d.Stats(), want)
	}
	// A root that is itself a link is followed.
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if got := open(t, Options{Text: link, Match: "*.go", Context: 1}); all(got.train) != all(d.train) {
		t.Error("a linked root reads something else")
	}
}

func TestWindowsAreTheText(t *testing.T) {
	text := strings.Repeat("0123456789", 50)
	dir := folder(t, map[string]string{"a.txt": text})
	d := open(t, Options{Text: filepath.Join(dir, "a.txt"), Context: 7, Seed: 3})
	full := text + "\x00"
	window := make([]int32, 8)
	for i := range d.Stats().Windows * 3 {
		d.Window(i, window)
		got, _ := Bytes.Decode(nil, window)
		if at := int(d.sampler.At(i)); string(got) != full[at:at+8] {
			t.Fatalf("sample %d is %q, want %q", i, got, full[at:at+8])
		}
	}
}

func TestHoldoutByFile(t *testing.T) {
	files := map[string]string{}
	for i := range 1000 {
		files[fmt.Sprintf("d%d/f%d.txt", i%7, i)] = fmt.Sprintf("<%d>", i)
	}
	dir := folder(t, files)
	d := open(t, Options{Text: dir, Holdout: 0.1, Context: 4, Seed: 1})
	train, held := all(d.train), all(d.held)
	in := func(s string) (n int) {
		for i := range 1000 {
			if strings.Contains(s, fmt.Sprintf("<%d>", i)) {
				n++
			}
		}
		return n
	}
	if h := in(held); h < 70 || h > 130 {
		t.Errorf("%d of 1000 files are held out, want about 100", h)
	}
	if in(train)+in(held) != 1000 {
		t.Errorf("%d files for training and %d held out are not 1000", in(train), in(held))
	}
	// Neither the seed nor the context nor a limit on something else moves a file.
	e := open(t, Options{Text: dir, Holdout: 0.1, Context: 9, Seed: 2})
	if all(e.held) != held || all(e.train) != train {
		t.Error("seed or context move the held-out part")
	}
	// More held out is a superset.
	more := all(open(t, Options{Text: dir, Holdout: 0.2, Context: 4}).held)
	for _, doc := range strings.Split(strings.TrimSuffix(held, "\x00"), "\x00") {
		if !strings.Contains(more, doc) {
			t.Errorf("%s is held out at 0.1 and not at 0.2", doc)
		}
	}
}

func TestHoldoutByTail(t *testing.T) {
	dir := folder(t, map[string]string{"a": strings.Repeat("a", 90) + strings.Repeat("A", 10), "b": strings.Repeat("b", 45) + "BBBBB"})
	d := open(t, Options{Text: dir, Holdout: 0.1, Context: 4})
	if got, want := all(d.train), strings.Repeat("a", 90)+"\x00"+strings.Repeat("b", 45)+"\x00"; got != want {
		t.Errorf("training text %q, want %q", got, want)
	}
	if got, want := all(d.held), "AAAAAAAAAA\x00BBBBB\x00"; got != want {
		t.Errorf("held-out text %q, want %q", got, want)
	}
}

func TestHeldSequencesDoNotOverlap(t *testing.T) {
	dir := folder(t, map[string]string{"a": strings.Repeat("x", 1000)})
	d := open(t, Options{Text: dir, Holdout: 0.5, Context: 9, Held: 55})
	if got := d.Stats().HeldWindows; got != 55 { // (501-1)/9
		t.Fatalf("%d held-out windows, want 55", got)
	}
	seen := map[int64]bool{}
	for j := range 55 {
		seen[spread(int64(j), 55)] = true
		d.Held(j, make([]int32, 10))
	}
	if len(seen) != 55 {
		t.Errorf("%d different sequences, want 55", len(seen))
	}
}

func TestLimitTakesAnEvenPart(t *testing.T) {
	files := map[string]string{}
	for i := range 200 {
		files[fmt.Sprintf("%c/%03d", 'a'+i/50, i)] = strings.Repeat(string(rune('a'+i/50)), 100)
	}
	dir := folder(t, files)
	d := open(t, Options{Text: dir, LimitBytes: 5050, Context: 4})
	if d.Stats().Bytes != 5050 || d.Stats().Files != 51 {
		t.Errorf("stats %+v, want 5050 bytes of 51 files", d.Stats())
	}
	text := all(d.train)
	for _, c := range "abcd" {
		if n := strings.Count(text, string(c)); n < 500 || n > 2200 {
			t.Errorf("folder %c has %d of 5050 bytes, want about a quarter", c, n)
		}
	}
	if !reflect.DeepEqual(all(open(t, Options{Text: dir, LimitBytes: 1 << 40, Context: 4}).train), all(open(t, Options{Text: dir, Context: 4}).train)) {
		t.Error("a limit above the size changes the text")
	}
}

func TestColumnsHoldTheirVocabulary(t *testing.T) {
	for _, size := range []int{256, 257, 65536, 65537, maxVocabulary} {
		c := newColumn(size, 1)
		want := []int32{0, int32(size - 1), 1}
		c.append(want)
		got := make([]int32, 2)
		c.copy(got, 1)
		if c.len() != 3 || !reflect.DeepEqual(got, want[1:]) {
			t.Errorf("a vocabulary of %d: %v came back as %v", size, want[1:], got)
		}
	}
}

func TestOpenWithBPE(t *testing.T) {
	files := map[string]string{}
	for i := range 40 {
		files[fmt.Sprintf("%02d.go", i)] = sample
	}
	dir := folder(t, files)
	o := Options{Text: dir, Holdout: 0.5, Context: 16}
	bpe, err := TrainTokenizer(o, 350)
	if err != nil {
		t.Fatal(err)
	}
	o.Tokenizer = bpe
	d := open(t, o)
	tokens := make([]int32, d.held.len())
	d.held.copy(tokens, 0)
	text, err := bpe.Decode(nil, tokens)
	if err != nil {
		t.Fatal(err)
	}
	if want := bytes.Repeat([]byte(sample+"\x00"), bytes.Count(text, []byte{0})); !bytes.Equal(text, want) || len(text) == 0 {
		t.Errorf("%d bytes of held-out text are not the text", len(text))
	}
	if d.Tokenizer() != Tokenizer(bpe) {
		t.Error("another tokenizer")
	}
}

// Bad input is one line that names what was given and what is legal.
func TestOpenRefuses(t *testing.T) {
	dir := folder(t, map[string]string{"a.txt": "hello, world", "bin": "a\x00", "empty/e.go": ""})
	t.Setenv("TROUPE_TEST_DIR", "")
	for _, c := range []struct {
		name string
		o    Options
		want string
	}{
		{"nothing", Options{}, "data.text is empty"},
		{"missing folder", Options{Text: dir + "/none"}, "/none: there is no such file or folder"},
		{"variable", Options{Text: "$TROUPE_TEST_DIR/x"}, `data.text "$TROUPE_TEST_DIR/x": the variable $TROUPE_TEST_DIR is not set`},
		{"no match", Options{Text: dir, Match: "*.rs"}, `none of its 3 files matches data.match "*.rs"`},
		{"bad pattern", Options{Text: dir, Match: "[a"}, `data.match "[a" is not a pattern`},
		{"empty data", Options{Text: dir, Match: "*.go"}, "its 1 files are empty or contain zero bytes"},
		{"empty folder", Options{Text: t.TempDir()}, "there is no file in it"},
		{"binary", Options{Text: dir + "/bin"}, "contain zero bytes"},
		{"not a file", Options{Text: os.DevNull}, "neither a file nor a folder"},
		{"short text", Options{Text: dir, Match: "*.txt", Context: 256}, "13 tokens for training are fewer than model.context + 1 = 257; legal with this text is a context of 1 to 12"},
		{"context", Options{Text: dir, Context: -1}, "model.context is -1"},
		{"holdout", Options{Text: dir, Holdout: 1}, "data.holdout is 1; legal is 0 up to"},
		{"limit", Options{Text: dir, LimitBytes: -5}, "data.limit_bytes is -5"},
		{"held", Options{Text: dir, Held: -5}, "train.evaluate.batch is -5"},
		{"held-out text", Options{Text: dir, Match: "*.txt", Holdout: 0.5, Held: 4, Context: 3}, "asks for 4 sequences of 3 tokens, but the 7 held-out tokens (data.holdout 0.5) have room for 2; legal is 0 to 2"},
		{"no held-out text", Options{Text: dir, Held: 4}, "have room for 0"},
	} {
		if c.o.Context == 0 {
			c.o.Context = 4
		}
		_, err := Open(c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}

func TestUnreadableFileIsAnError(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root reads everything")
	}
	dir := folder(t, map[string]string{"a": "text", "b": "text"})
	if err := os.Chmod(filepath.Join(dir, "b"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{Text: dir, Context: 1}); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("error %v", err)
	}
}

func TestGoRootNeedsNoVariable(t *testing.T) {
	t.Setenv("GOROOT", "")
	got, err := expand("data.text", "$GOROOT/src")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(got, "fmt", "print.go")); err != nil {
		t.Error(err)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := expand("data.text", "${GOROOT}/src"); err == nil || !strings.Contains(err.Error(), "no go command on the PATH") {
		t.Errorf("error %v", err)
	}
	t.Setenv("GOROOT", "/somewhere")
	if got, err := expand("data.text", "$GOROOT/src"); err != nil || got != "/somewhere/src" {
		t.Errorf("%q, %v", got, err)
	}
}

// BenchmarkOpen reads the Go source tree.
func BenchmarkOpen(b *testing.B) {
	for b.Loop() {
		d := open(b, Options{Text: "$GOROOT/src", Match: "*.go", Holdout: 0.05, Context: 256})
		b.SetBytes(d.Stats().Bytes)
		b.ReportMetric(float64(d.Stats().HeldTokens)/float64(d.Stats().TrainTokens+d.Stats().HeldTokens), "held")
	}
}

// TestSHA256: the hash tells texts of the same size apart, and is that of the text alone.
func TestSHA256(t *testing.T) {
	sum := func(text string, seed uint64) string {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return open(t, Options{Text: dir, Context: 1, Seed: seed}).Stats().SHA256
	}
	a, b := sum("some text", 1), sum("same text", 1)
	if a == b {
		t.Error("two texts have one hash")
	}
	if again := sum("some text", 2); again != a {
		t.Errorf("one text has the hashes %s and %s", a, again)
	}
}
