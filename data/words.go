package data

// maxWord is the most bytes of a word, and so of a token. It bounds the work of a merge.
const maxWord = 64

type class uint8

const (
	separator class = iota
	space
	letter // letters, underscore and all bytes of characters beyond ASCII
	digit
	other
)

var classes = func() (t [256]class) {
	for b := range t {
		switch {
		case byte(b) == Separator:
			t[b] = separator
		case b == ' ' || b == '\t' || b == '\n' || b == '\r':
			t[b] = space
		case b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b == '_' || b >= 0x80:
			t[b] = letter
		case b >= '0' && b <= '9':
			t[b] = digit
		default:
			t[b] = other
		}
	}
	return t
}()

// nextWord is the length of the word that text, which is not empty, begins with. Merges never
// cross the end of a word. A word is a separator; or white space; or a run of letters, of digits or
// of other characters, with the one blank that stands before it. No word is longer than maxWord.
func nextWord(text []byte) int {
	c := classes[text[0]]
	if c == separator {
		return 1
	}
	n := run(text, 0, c)
	if c != space || n == len(text) || n == maxWord || text[n-1] != ' ' || classes[text[n]] == separator {
		return n
	}
	// The last blank goes with the word behind it.
	if n > 1 {
		return n - 1
	}
	return run(text, 1, classes[text[1]])
}

// run is the end of the run of class c that begins at from.
func run(text []byte, from int, c class) int {
	n := from
	for n < len(text) && n < maxWord && classes[text[n]] == c {
		n++
	}
	return n
}
