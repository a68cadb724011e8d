package tests

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/troupe-train/troupe/plan"
)

const jobPage = "../docs/job.md"

// TestJobPage: docs/job.md has every key of a job file, as the comments of plan/job.go explain it.
func TestJobPage(t *testing.T) {
	page := renderJob(t)
	if *update {
		write(t, jobPage, page)
	}
	b, err := os.ReadFile(jobPage)
	if err != nil {
		t.Fatal(err)
	}
	if string(b) != page {
		t.Errorf("%s is not what plan/job.go says; write it anew: go test ./tests -run TestJobPage -update", jobPage)
	}
	for _, key := range plan.Keys() {
		if name := key[strings.LastIndex(key, ".")+1:]; !strings.Contains(page, "`"+name+"`") {
			t.Errorf("%s does not have %s", jobPage, key)
		}
	}
}

func renderJob(t *testing.T) string {
	f, err := parser.ParseFile(token.NewFileSet(), "../plan/job.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	r := jobRenderer{structs: map[string]*ast.GenDecl{}}
	for _, d := range f.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.TYPE {
			r.structs[g.Specs[0].(*ast.TypeSpec).Name.Name] = g
		}
	}
	fmt.Fprint(&r, "# The job file\n\n",
		"<!-- Made from the comments of plan/job.go by: go test ./tests -run TestJobPage -update -->\n\n",
		"A job is one YAML file. Every key can also be set on the command line, as in `--set layout.pipeline=2`. ",
		"A key that does not exist is refused with the nearest that does; `examples/gosrc.yaml` is a job to start from.\n")
	r.section("", reflect.ValueOf(*plan.Defaults()))
	return r.String()
}

type jobRenderer struct {
	strings.Builder
	structs map[string]*ast.GenDecl
}

var spaces = regexp.MustCompile(`\s+`)

func text(groups ...*ast.CommentGroup) string {
	var parts []string
	for _, g := range groups {
		if s := strings.TrimSpace(spaces.ReplaceAllString(g.Text(), " ")); s != "" {
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, " ")
}

// section writes the table of a struct, and then the sections in it.
func (r *jobRenderer) section(path string, v reflect.Value) {
	g := r.structs[v.Type().Name()]
	if path != "" {
		words := strings.SplitN(text(g.Doc), " ", 2)
		fmt.Fprintf(r, "\n## %s\n\n%s\n", path, strings.ToUpper(words[0][:1])+words[0][1:]+" "+words[1])
	}
	fmt.Fprint(r, "\n| key | default | what it is, or the values that are legal |\n|---|---|---|\n")
	fields := g.Specs[0].(*ast.TypeSpec).Type.(*ast.StructType).Fields.List
	var sections []func()
	for i, field := range fields {
		key := v.Type().Field(i).Tag.Get("yaml")
		about := r.keys(v.Type(), text(field.Doc, field.Comment))
		if value := v.Field(i); value.Kind() == reflect.Struct {
			inner := strings.TrimPrefix(path+"."+key, ".")
			if about == "" {
				about = "a section, see below"
			}
			fmt.Fprintf(r, "| `%s` | | %s |\n", key, about)
			sections = append(sections, func() { r.section(inner, value) })
		} else {
			fmt.Fprintf(r, "| `%s` | %s | %s |\n", key, standard(value, about), strings.ReplaceAll(meaning(about), "|", `\|`))
		}
	}
	for _, f := range sections {
		f()
	}
}

// keys replaces the names of a struct's fields by keys.
func (r *jobRenderer) keys(t reflect.Type, about string) string {
	for i := range t.NumField() {
		about = regexp.MustCompile(`\b`+t.Field(i).Name+`\b`).ReplaceAllString(about, "`"+t.Field(i).Tag.Get("yaml")+"`")
	}
	return about
}

// standard is the default of a key.
func standard(v reflect.Value, about string) string {
	switch {
	case strings.Contains(strings.ToLower(about), "required"):
		return "required"
	case v.IsZero() && v.Kind() != reflect.Int && v.Kind() != reflect.Int64 && v.Kind() != reflect.Float64:
		return ""
	}
	return fmt.Sprintf("`%v`", v.Interface())
}

var (
	required = regexp.MustCompile(`(?i)[;.]? ?required\.?$`)
	known    = regexp.MustCompile(`(?i)[;.,]? ?default (\S+?)\.?$`)
)

// meaning is a comment without what the column beside it says.
func meaning(about string) string {
	about = required.ReplaceAllString(about, "")
	return strings.TrimSpace(known.ReplaceAllString(about, ""))
}
