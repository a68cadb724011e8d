package data

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"

	"github.com/troupe-train/troupe/device/random"
)

// Separator ends every document. Text has no zero bytes, so no document contains it.
const Separator byte = 0

// Text is a set of text files. Its contents are read when they are asked for.
type Text struct {
	given   string
	holdout float64
	files   []file
	// byFile says that the held-out part is whole files; otherwise it is the end of each file.
	byFile bool
}

// file is one file of a text.
type file struct {
	name string // relative to the root, with slashes; the base name for a single file
	path string
	size int64 // bytes to read: all of it, or less for the file that meets the limit
}

// Document is a file of a text, cut in two: Train and Held. Either may be empty.
type Document struct {
	Name        string
	Train, Held []byte
}

// wholeFiles is the expected number of held-out files from which on whole files are held out.
const wholeFiles = 16

// OpenText finds the files of o.Text whose names match o.Match.
//
// Folders are walked to the bottom. Files and folders whose names begin with a dot are skipped, and
// so is what is neither a file nor a link to one; links to folders are not followed. A pattern
// without a slash is matched with the base name, one with a slash with the path below o.Text.
//
// With o.LimitBytes, files are taken in the order of a hash of their names until there is enough
// text, so that a small part looks like the whole; the last one is cut.
//
// With many files, a file is held out when a hash of its name, uniform in [0,1), is under
// o.Holdout. Where that would be fewer than 16 files, the last o.Holdout share of the bytes of
// every file is held out instead.
func OpenText(o Options) (*Text, error) {
	if o.Text == "" {
		return nil, errors.New("data.text is empty: give a file or a folder")
	}
	if _, err := path.Match(o.Match, ""); err != nil {
		return nil, fmt.Errorf("data.match %q is not a pattern; legal is, for example, \"*.go\"", o.Match)
	}
	if !(o.Holdout >= 0 && o.Holdout < 1) {
		return nil, fmt.Errorf("data.holdout is %v; legal is 0 up to, but not including, 1", o.Holdout)
	}
	if o.LimitBytes < 0 {
		return nil, fmt.Errorf("data.limit_bytes is %d; legal is 1 and more, or 0 for no limit", o.LimitBytes)
	}
	root, err := expand("data.text", o.Text)
	if err != nil {
		return nil, err
	}
	t := &Text{given: o.Text, holdout: o.Holdout}
	if root != o.Text {
		t.given += " (" + root + ")"
	}
	info, err := os.Stat(root)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, t.errorf("there is no such file or folder")
	case err != nil:
		return nil, t.errorf("%v", err)
	case info.IsDir():
		err = t.walk(root, o.Match)
	case info.Mode().IsRegular():
		t.files = []file{{name: filepath.Base(root), path: root, size: info.Size()}}
	default:
		return nil, t.errorf("it is neither a file nor a folder")
	}
	if err != nil {
		return nil, err
	}
	t.limit(o.LimitBytes)
	t.byFile = float64(len(t.files))*t.holdout >= wholeFiles
	return t, nil
}

// walk fills t.files with the files under root, in the order of their names.
func (t *Text) walk(root, match string) error {
	// A root that is a link is followed: WalkDir does not do that by itself.
	real, err := filepath.EvalSymlinks(root)
	if err != nil {
		return t.errorf("%v", err)
	}
	seen := 0
	err = filepath.WalkDir(real, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if p == real {
			return nil
		}
		if strings.HasPrefix(d.Name(), ".") {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if d.IsDir() {
			return nil
		}
		rel, err := filepath.Rel(real, p)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		seen++
		if !matches(match, name) {
			return nil
		}
		info, err := os.Stat(p) // follows links
		if errors.Is(err, fs.ErrNotExist) && d.Type()&fs.ModeSymlink != 0 {
			return nil // a link to nothing
		}
		if err != nil {
			return err
		}
		if info.Mode().IsRegular() {
			t.files = append(t.files, file{name: name, path: p, size: info.Size()})
		}
		return nil
	})
	if err != nil {
		return t.errorf("%v", err)
	}
	if len(t.files) == 0 {
		if match != "" {
			return t.errorf("none of its %d files matches data.match %q", seen, match)
		}
		return t.errorf("there is no file in it")
	}
	sort.Slice(t.files, func(i, j int) bool { return t.files[i].name < t.files[j].name })
	return nil
}

func matches(match, name string) bool {
	if match == "" {
		return true
	}
	if !strings.Contains(match, "/") {
		name = path.Base(name)
	}
	ok, _ := path.Match(match, name) // the pattern has been checked
	return ok
}

// limit keeps files of no more than bytes together.
func (t *Text) limit(bytes int64) {
	if bytes == 0 || t.Bytes() <= bytes {
		return
	}
	key := func(f file) uint64 { return random.Key(random.String("data.limit"), random.String(f.name)) }
	sort.SliceStable(t.files, func(i, j int) bool { return key(t.files[i]) < key(t.files[j]) })
	for i := range t.files {
		f := &t.files[i]
		if f.size >= bytes {
			f.size = bytes
			t.files = t.files[:i+1]
			break
		}
		bytes -= f.size
	}
	sort.Slice(t.files, func(i, j int) bool { return t.files[i].name < t.files[j].name })
}

// Files is the number of files, and Bytes their size together, before binary files are skipped.
func (t *Text) Files() int { return len(t.files) }
func (t *Text) Bytes() int64 {
	var n int64
	for _, f := range t.files {
		n += f.size
	}
	return n
}

// Documents reads the files one after the other. The bytes of a document are valid until the next
// one. A file that contains a zero byte is not text and is skipped.
func (t *Text) Documents() iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		var buf bytes.Buffer
		for _, f := range t.files {
			buf.Reset()
			if err := f.read(&buf); err != nil {
				yield(Document{}, t.errorf("%v", err))
				return
			}
			text := buf.Bytes()
			if len(text) == 0 || bytes.IndexByte(text, Separator) >= 0 {
				continue
			}
			if !yield(t.split(f.name, text), nil) {
				return
			}
		}
	}
}

func (f file) read(dst *bytes.Buffer) error {
	r, err := os.Open(f.path)
	if err != nil {
		return err
	}
	defer r.Close()
	dst.Grow(int(f.size) + bytes.MinRead)
	_, err = dst.ReadFrom(io.LimitReader(r, f.size))
	return err
}

// split cuts a document into its part for training and its held-out part.
func (t *Text) split(name string, text []byte) Document {
	d := Document{Name: name}
	cut := len(text)
	if t.byFile {
		if random.Uniform(random.Key(random.String("data.holdout"), random.String(name)), 0) < t.holdout {
			cut = 0
		}
	} else {
		cut -= int(float64(len(text)) * t.holdout)
	}
	d.Train, d.Held = text[:cut], text[cut:]
	return d
}

// errorf is an error about this text.
func (t *Text) errorf(format string, args ...any) error {
	return fmt.Errorf("data.text %s: %w", t.given, fmt.Errorf(format, args...))
}
