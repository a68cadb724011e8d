package tests

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/troupe-train/troupe/"

// order is the order of the packages: imports go down this list only. A folder stands for the
// packages below it, too, unless they have a line of their own.
var order = []string{
	"cmd/troupe", "examples", "bench", "sim", "supervisor", "stage", "optim", "allreduce", "actors", "actors/machine",
	"checkpoint", "plan", "plan/schedule", "data", "model", "device/cpu", "device", "device/random", "messages",
}

// exceptions to the order, each with its reason.
var exceptions = map[[2]string]string{}

// ban is what may stand only in some packages.
type ban struct {
	what   string
	finds  func(f *ast.File, n ast.Node) bool
	except []string
}

var bans = []ban{
	{"time.Now, time.Sleep, time.After or a timer (clocks belong to shells)", calls("time", "Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"), []string{"actors", "supervisor", "cmd/troupe", "examples", "bench", "device/cpu"}},
	{"math/rand (random numbers are keyed: device/random)", imports("math/rand", "math/rand/v2"), nil},
	{"a go statement (only shells start goroutines)", func(_ *ast.File, n ast.Node) bool { _, ok := n.(*ast.GoStmt); return ok }, []string{"actors", "supervisor", "cmd/troupe", "device/cpu"}},
	{"protoactor (its one home is actors)", imports("github.com/asynkron/protoactor-go/actor"), []string{"actors"}},
	{"NATS (its one home is actors)", imports("github.com/nats-io/nats.go", "github.com/nats-io/nats-server/v2/server"), []string{"actors"}},
	{"a bounded protoactor mailbox (it spins or deadlocks the sender)", calls("actor", "Bounded", "BoundedDropping"), nil},
	{"os or net in a pure package", imports("os", "net", "net/http", "os/exec"), []string{"actors", "supervisor", "cmd/troupe", "examples", "data", "checkpoint", "device/cpu"}},
}

// pure packages have no file, clock or socket in their product code whatever the folder above may do.
var pure = []string{"actors/machine", "plan", "plan/schedule", "model", "stage", "optim", "allreduce", "device/random"}

func TestTidy(t *testing.T) {
	root := ".."
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != root && strings.HasPrefix(name, ".") || name == "testdata" || name == "runs" {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, ".pb.go") {
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		checkFile(t, path, filepath.ToSlash(filepath.Dir(rel)))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func checkFile(t *testing.T, path, pkg string) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
	if err != nil {
		t.Error(err)
		return
	}
	if strings.HasPrefix(pkg, "tests") {
		return
	}
	from := rank(pkg)
	if from < 0 {
		t.Errorf("%s: package %s has no place in the order of packages (tests/tidy_test.go, ARCHITECTURE.md)", path, pkg)
		return
	}
	for _, im := range f.Imports {
		p, err := strconv.Unquote(im.Path.Value)
		if err != nil {
			t.Error(err)
			continue
		}
		local, ok := strings.CutPrefix(p, module)
		if !ok {
			continue
		}
		if to := rank(local); to < from && exceptions[[2]string{pkg, local}] == "" {
			t.Errorf("%s imports %s: imports go down the list of packages only", fset.Position(im.Pos()), local)
		}
	}
	for _, b := range bans {
		if in(pkg, b.except) && !slices.Contains(pure, pkg) {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if n != nil && b.finds(f, n) {
				t.Errorf("%s: %s", fset.Position(n.Pos()), b.what)
			}
			return true
		})
	}
}

// rank is the place of a package in the order; the longest line that covers it counts.
func rank(pkg string) int {
	best := -1
	for i, o := range order {
		if (pkg == o || strings.HasPrefix(pkg, o+"/")) && (best < 0 || len(o) > len(order[best])) {
			best = i
		}
	}
	return best
}

func in(pkg string, list []string) bool {
	return slices.ContainsFunc(list, func(o string) bool { return pkg == o || strings.HasPrefix(pkg, o+"/") })
}

func calls(pkg string, names ...string) func(*ast.File, ast.Node) bool {
	return func(_ *ast.File, n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		x, ok := s.X.(*ast.Ident)
		return ok && x.Name == pkg && x.Obj == nil && slices.Contains(names, s.Sel.Name)
	}
}

func imports(paths ...string) func(*ast.File, ast.Node) bool {
	return func(_ *ast.File, n ast.Node) bool {
		s, ok := n.(*ast.ImportSpec)
		if !ok {
			return false
		}
		p, err := strconv.Unquote(s.Path.Value)
		return err == nil && slices.Contains(paths, p)
	}
}
