package plan

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// maxJobBytes bounds a job file. It keeps a wrong path, such as a checkpoint, from being parsed at length.
const maxJobBytes = 64 << 10

// Parse reads a job file over the defaults. It is strict: a key that does not exist, a key given
// twice and a value of another type than the key's are refused. file is the name for messages and
// for the default of the job's name; nothing is read from it. The error is a *JobError.
// Whether the values make sense together is Validate's question, so that Set can come between.
func Parse(file string, data []byte) (*Job, error) {
	if len(data) > maxJobBytes {
		return nil, &JobError{file, fmt.Sprintf("the job file has %d bytes; at most %d are legal", len(data), maxJobBytes)}
	}
	root, err := parseYAML(file, data)
	if err != nil {
		return nil, err
	}
	job := Defaults()
	job.Name = nameOf(file)
	d := decoder{file}
	if err := d.section("", reflect.ValueOf(job).Elem(), root); err != nil {
		return nil, err
	}
	return job, nil
}

// parseYAML returns the body of the only document.
func parseYAML(file string, data []byte) (body ast.Node, err error) {
	// The YAML parser has had panics on malformed input. A job file comes from outside.
	defer func() {
		if p := recover(); p != nil {
			body, err = nil, &JobError{file, fmt.Sprintf("is not YAML: %s", oneLine(fmt.Sprint(p)))}
		}
	}()
	f, err := parser.ParseBytes(data, 0)
	if err != nil {
		var y yaml.Error
		if errors.As(err, &y) && y.GetToken() != nil && y.GetToken().Position != nil {
			what := oneLine(y.GetMessage())
			if !strings.Contains(what, "already defined") {
				what = "is not YAML: " + what
			}
			return nil, &JobError{fmt.Sprintf("%s:%d", file, y.GetToken().Position.Line), what}
		}
		return nil, &JobError{file, "is not YAML: " + oneLine(yaml.FormatError(err, false, false))}
	}
	for _, doc := range f.Docs {
		if doc == nil || doc.Body == nil || doc.Body.Type() == ast.CommentType || doc.Body.Type() == ast.CommentGroupType {
			continue
		}
		if body != nil {
			return nil, &JobError{file, "holds more than one YAML document; a job is one"}
		}
		body = doc.Body
	}
	return body, nil
}

type decoder struct{ file string }

func (d decoder) errorf(n ast.Node, format string, args ...any) error {
	where := d.file
	if n != nil && n.GetToken() != nil && n.GetToken().Position != nil {
		where = fmt.Sprintf("%s:%d", d.file, n.GetToken().Position.Line)
	}
	return &JobError{where, oneLine(fmt.Sprintf(format, args...))}
}

// section decodes the mapping n into the struct v. A section without keys is legal.
func (d decoder) section(path string, v reflect.Value, n ast.Node) error {
	if n == nil || n.Type() == ast.NullType {
		return nil
	}
	var entries []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		entries = n.Values
	case *ast.MappingValueNode:
		entries = []*ast.MappingValueNode{n}
	default:
		what := path
		if path == "" {
			what = "the job"
		}
		return d.errorf(n, "%s is %s; a section with the keys %s is legal", what, describe(n), list(fieldNames(v.Type())))
	}
	seen := map[string]bool{}
	for _, e := range entries {
		key := e.Key.GetToken().Value
		if e.Key.Type() != ast.StringType {
			return d.errorf(e, "%s%q is %s, not a key; legal keys: %s", prefix(path), key, describe(e.Key), list(fieldNames(v.Type())))
		}
		field, ok := fieldByName(v, key)
		if !ok {
			return d.errorf(e, "%s", unknownKey(path, key, v.Type()))
		}
		if seen[key] {
			return d.errorf(e, "%s%s is given twice", prefix(path), key)
		}
		seen[key] = true
		if err := d.value(prefix(path)+key, field, e.Value); err != nil {
			return err
		}
	}
	return nil
}

func (d decoder) value(path string, v reflect.Value, n ast.Node) error {
	switch v.Kind() {
	case reflect.Struct:
		return d.section(path, v, n)
	case reflect.Slice:
		seq, ok := n.(*ast.SequenceNode)
		if !ok {
			return d.errorf(n, "%s is %s; a list of whole numbers like [2, 3] is legal", path, describe(n))
		}
		items := reflect.MakeSlice(v.Type(), len(seq.Values), len(seq.Values))
		for i, item := range seq.Values {
			if err := d.value(fmt.Sprintf("%s[%d]", path, i), items.Index(i), item); err != nil {
				return err
			}
		}
		v.Set(items)
		return nil
	}
	text, quoted, ok := scalar(n)
	if !ok || quoted && v.Kind() != reflect.String {
		return d.errorf(n, "%s is %s; %s is legal", path, describe(n), wanted(v.Kind()))
	}
	if err := assign(v, text); err != nil {
		return d.errorf(n, "%s is %s", path, err)
	}
	return nil
}

// scalar returns the text of a plain or quoted value as it was written.
func scalar(n ast.Node) (text string, quoted, ok bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		t := n.Token.Type
		return n.Value, t == token.SingleQuoteType || t == token.DoubleQuoteType, true
	case *ast.LiteralNode:
		return n.Value.Value, true, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, false, true
	}
	return "", false, false
}

func describe(n ast.Node) string {
	switch n := n.(type) {
	case nil, *ast.NullNode:
		return "empty"
	case *ast.StringNode:
		if _, quoted, _ := scalar(n); quoted {
			return fmt.Sprintf("the text %q", n.Value)
		}
		return fmt.Sprintf("%q", n.Value)
	case *ast.LiteralNode:
		return "a block of text"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a section"
	case *ast.SequenceNode:
		return "a list"
	case *ast.AnchorNode, *ast.AliasNode:
		return "an anchor or alias, which job files do not have"
	case *ast.TagNode:
		return "a tag, which job files do not have"
	case *ast.MergeKeyNode:
		return "a merge key, which job files do not have"
	}
	return n.GetToken().Value
}

// nameOf makes a job's name of its file's.
func nameOf(file string) string {
	base := filepath.Base(filepath.ToSlash(file))
	base = strings.TrimSuffix(base, filepath.Ext(base))
	name := strings.Map(func(r rune) rune {
		if legalInName(r) {
			return r
		}
		return '-'
	}, base)
	if strings.Trim(name, "-") == "" {
		return "job"
	}
	return name[:min(len(name), maxName)]
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
