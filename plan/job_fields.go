package plan

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
)

// Keys are all keys of a job file, with dots between section and key, in the order of the structs.
func Keys() []string {
	var keys []string
	var walk func(path string, t reflect.Type)
	walk = func(path string, t reflect.Type) {
		for i := range t.NumField() {
			f := t.Field(i)
			key := prefix(path) + f.Tag.Get("yaml")
			if f.Type.Kind() == reflect.Struct {
				walk(key, f.Type)
			} else {
				keys = append(keys, key)
			}
		}
	}
	walk("", reflect.TypeFor[Job]())
	return keys
}

// Set changes one key, written as on the command line: "layout.pipeline=2". It is as strict as
// Parse. A list is written 2,3 or [2, 3]; text is taken as it stands. The error is a *JobError.
func (j *Job) Set(assignment string) error {
	fail := func(format string, args ...any) error {
		return &JobError{fmt.Sprintf("--set %q", assignment), oneLine(fmt.Sprintf(format, args...))}
	}
	path, text, ok := strings.Cut(assignment, "=")
	if !ok {
		return fail("has no =; key=value is legal, such as layout.pipeline=2")
	}
	path = strings.TrimSpace(path)
	v := reflect.ValueOf(j).Elem()
	parts := strings.Split(path, ".")
	for i, part := range parts {
		before := strings.Join(parts[:i], ".")
		if v.Kind() != reflect.Struct {
			return fail("%s is a key, not a section: it has no key %q", before, part)
		}
		field, ok := fieldByName(v, part)
		if !ok {
			return fail("%s", unknownKey(before, part, v.Type()))
		}
		v = field
	}
	switch v.Kind() {
	case reflect.Struct:
		return fail("%s is a section; set one of its keys: %s", path, list(fieldNames(v.Type())))
	case reflect.Slice:
		text = strings.TrimSpace(text)
		if strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]") {
			text = strings.TrimSpace(text[1 : len(text)-1])
		}
		var items []string
		if text != "" {
			items = strings.Split(text, ",")
		}
		out := reflect.MakeSlice(v.Type(), len(items), len(items))
		for i, item := range items {
			if err := assign(out.Index(i), strings.TrimSpace(item)); err != nil {
				return fail("%s[%d] is %s", path, i, err)
			}
		}
		v.Set(out)
		return nil
	case reflect.String:
	default:
		text = strings.TrimSpace(text)
	}
	if err := assign(v, text); err != nil {
		return fail("%s is %s", path, err)
	}
	return nil
}

// assign parses text by the type of v. The error continues the sentence "KEY is ...".
func assign(v reflect.Value, text string) error {
	wrong := func() error { return fmt.Errorf("%q; %s is legal", text, wanted(v.Kind())) }
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, v.Type().Bits())
		if err != nil {
			return wrong()
		}
		v.SetInt(n)
	case reflect.Uint64:
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return wrong()
		}
		v.SetUint(n)
	case reflect.Bool:
		if text != "true" && text != "false" {
			return wrong()
		}
		v.SetBool(text == "true")
	case reflect.Float64:
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
			return wrong()
		}
		v.SetFloat(x)
	default:
		panic(fmt.Sprintf("plan: a job has a field of kind %s", v.Kind()))
	}
	return nil
}

func wanted(k reflect.Kind) string {
	switch k {
	case reflect.String:
		return "text"
	case reflect.Uint64:
		return "a whole number from 0 to 18446744073709551615"
	case reflect.Float64:
		return "a finite number"
	case reflect.Bool:
		return "true or false"
	}
	return "a whole number of at most 64 bits"
}

func fieldByName(v reflect.Value, key string) (reflect.Value, bool) {
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("yaml") == key {
			return v.Field(i), true
		}
	}
	return reflect.Value{}, false
}

func fieldNames(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		names = append(names, t.Field(i).Tag.Get("yaml"))
	}
	return names
}

// unknownKey names the nearest key of the section, and where the key would be legal if it is one
// of another section.
func unknownKey(path, key string, t reflect.Type) string {
	where := "the job"
	if path != "" {
		where = path
	}
	msg := fmt.Sprintf("%s has no key %q; ", where, key)
	for _, k := range Keys() {
		if strings.HasSuffix(k, "."+key) || k == key {
			return msg + fmt.Sprintf("did you mean %s?", k)
		}
	}
	names := fieldNames(t)
	if near, ok := nearest(key, names); ok {
		return msg + fmt.Sprintf("did you mean %s%s? Its keys: %s", prefix(path), near, list(names))
	}
	return msg + "its keys: " + list(names)
}

func prefix(path string) string {
	if path == "" {
		return ""
	}
	return path + "."
}

func list(names []string) string { return strings.Join(names, ", ") }

// nearest returns the name with the least edit distance to given, if that is less than half of it.
func nearest(given string, names []string) (string, bool) {
	best, at := len(given)/2+1, ""
	for _, n := range names {
		if d := editDistance(given, n); d < best {
			best, at = d, n
		}
	}
	return at, at != ""
}

// editDistance counts insertions, deletions, substitutions and swaps of neighbours.
func editDistance(a, b string) int {
	if len(a) > 64 {
		a = a[:64]
	}
	d := make([][]int, len(a)+1)
	for i := range d {
		d[i] = make([]int, len(b)+1)
		d[i][0] = i
	}
	for j := range d[0] {
		d[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d[i][j] = min(d[i-1][j]+1, d[i][j-1]+1, d[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}
