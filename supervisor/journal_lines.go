package supervisor

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"

	"github.com/troupe-train/troupe/checkpoint"
)

const (
	journalVersion = 1
	// maxEntry bounds a line, and with it what a file that is no journal makes us read.
	maxEntry = 1 << 20
)

// ErrNotJournal is the error of a file that is not a journal.
var ErrNotJournal = errors.New("not a journal")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frame is an entry as it is written: eight hex digits of the CRC-32C of the JSON text, a space, the text, a newline.
func frame(e Entry) ([]byte, error) {
	text, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	if len(text) > maxEntry {
		return nil, fmt.Errorf("an entry of %d bytes; at most %d are legal", len(text), maxEntry)
	}
	return fmt.Appendf(nil, "%08x %s\n", crc32.Checksum(text, castagnoli), text), nil
}

// unframe undoes frame, for a line without its newline.
func unframe(line []byte) (Entry, bool) {
	var e Entry
	var sum [4]byte
	if len(line) < 10 || len(line) > maxEntry+9 || line[8] != ' ' {
		return e, false
	}
	if _, err := hex.Decode(sum[:], line[:8]); err != nil {
		return e, false
	}
	text := line[9:]
	want := uint32(sum[0])<<24 | uint32(sum[1])<<16 | uint32(sum[2])<<8 | uint32(sum[3])
	if crc32.Checksum(text, castagnoli) != want {
		return e, false
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if d.Decode(&e) != nil || d.More() {
		return Entry{}, false
	}
	return e, true
}

// ParseJournal reads a journal. whole is the length of what is in order: behind it there may be the last entry,
// half written by a process that died. Anything else that is not in order is an error.
func ParseJournal(data []byte) (l *Ledger, whole int, err error) {
	l = &Ledger{Skips: map[int64]string{}}
	for n := 1; whole < len(data); n++ {
		line, rest, complete := bytes.Cut(data[whole:], []byte("\n"))
		e, ok := unframe(line)
		if !ok || !complete {
			// Entries are written one after the other, so only the last can be torn.
			if !complete || len(rest) == 0 {
				if n == 1 && (complete || !bytes.HasPrefix([]byte(`00000000 {"run":{`), hexless(line))) {
					return nil, 0, ErrNotJournal
				}
				return l, whole, nil
			}
			if n == 1 {
				return nil, 0, ErrNotJournal
			}
			return nil, 0, fmt.Errorf("entry %d is damaged, and there are others behind it", n)
		}
		if err := l.apply(e); err != nil {
			return nil, 0, fmt.Errorf("entry %d: %w", n, err)
		}
		whole += len(line) + 1
	}
	return l, whole, nil
}

// hexless is the start of a line with its CRC made 0.
func hexless(line []byte) []byte {
	out := bytes.Clone(line[:min(len(line), 17)])
	for i := 0; i < min(len(out), 8); i++ {
		if c := out[i]; c >= '0' && c <= '9' || c >= 'a' && c <= 'f' {
			out[i] = '0'
		}
	}
	return out
}

// ReadJournal reads the journal of a run.
func ReadJournal(dir string) (*Ledger, error) {
	path := filepath.Join(dir, checkpoint.JournalName)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	l, _, err := ParseJournal(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return l, nil
}
