package checkpoint

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Piece is a range of elements of one kind of one parameter: [Lo, Lo+len(Data)).
type Piece struct {
	Name string
	Kind Kind
	Lo   int
	Data []float32
}

// tensorName is how a piece is called in a file, and parseTensorName undoes it.
func tensorName(kind Kind, name string, lo, hi int) string {
	return fmt.Sprintf("%s/%s[%d:%d]", kind, name, lo, hi)
}

func parseTensorName(s string) (kind Kind, name string, lo, hi int, ok bool) {
	k, rest, _ := strings.Cut(s, "/")
	open := strings.LastIndexByte(rest, '[')
	if open < 0 {
		return "", "", 0, 0, false
	}
	low, high, _ := strings.Cut(strings.TrimSuffix(rest[open+1:], "]"), ":")
	kind, name = Kind(k), rest[:open]
	lo, err1 := strconv.Atoi(low)
	hi, err2 := strconv.Atoi(high)
	ok = err1 == nil && err2 == nil && lo >= 0 && lo < hi && tensorName(kind, name, lo, hi) == s
	return kind, name, lo, hi, ok
}

// place says where elements [lo, hi) lie: in file number file, from byte offset on.
type place struct {
	lo, hi int
	file   int
	offset int64
}

type key struct {
	kind Kind
	name string
}

func (k key) String() string { return fmt.Sprintf("%s of %s", k.kind, k.name) }

// index knows the places of all elements.
type index struct {
	length map[string]int
	kinds  []Kind
	order  []Parameter
	places map[key][]place
}

func newIndex(m Meta) *index {
	x := &index{length: map[string]int{}, kinds: m.Kinds, order: m.Parameters, places: map[key][]place{}}
	for _, p := range m.Parameters {
		x.length[p.Name] = p.Len()
	}
	return x
}

// check refuses a range that no parameter has. It reads nothing that add changes.
func (x *index) check(k key, lo, hi int) error {
	n, ok := x.length[k.name]
	if !ok {
		return fmt.Errorf("there is no parameter %q", k.name)
	}
	if !slices.Contains(x.kinds, k.kind) {
		return fmt.Errorf("of %s there is no kind %q; legal is one of %q", k.name, k.kind, x.kinds)
	}
	if lo < 0 || hi < lo || hi > n {
		return fmt.Errorf("elements [%d:%d] of %s; legal is within [0:%d]", lo, hi, k, n)
	}
	return nil
}

func (x *index) add(k key, p place) error {
	if err := x.check(k, p.lo, p.hi); err != nil {
		return err
	}
	x.places[k] = append(x.places[k], p)
	return nil
}

// complete sorts the places and checks that they cover every element exactly once.
func (x *index) complete() error {
	for _, p := range x.order {
		for _, kind := range x.kinds {
			k := key{kind, p.Name}
			ps := x.places[k]
			sort.Slice(ps, func(i, j int) bool { return ps[i].lo < ps[j].lo })
			at := 0
			for _, q := range ps {
				if q.lo > at {
					return fmt.Errorf("elements [%d:%d] of %s are missing", at, q.lo, k)
				}
				if q.lo < at {
					return fmt.Errorf("elements [%d:%d] of %s are there twice", q.lo, min(at, q.hi), k)
				}
				at = q.hi
			}
			if n := x.length[p.Name]; at < n {
				return fmt.Errorf("elements [%d:%d] of %s are missing", at, n, k)
			}
		}
	}
	return nil
}

// within calls each for the parts of [lo, hi) in order; complete has been called.
func (x *index) within(k key, lo, hi int, each func(p place, lo, hi int) error) error {
	ps := x.places[k]
	for i := sort.Search(len(ps), func(i int) bool { return ps[i].hi > lo }); i < len(ps) && ps[i].lo < hi; i++ {
		if err := each(ps[i], max(lo, ps[i].lo), min(hi, ps[i].hi)); err != nil {
			return err
		}
	}
	return nil
}
