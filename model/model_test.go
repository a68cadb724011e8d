package model_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/troupe-train/troupe/model"
)

func TestNewRefuses(t *testing.T) {
	first := segment(nil, ports(x))
	last := segment(ports(x), ports(loss))
	y := model.Port{Name: "y", PerToken: 4}
	for _, c := range []struct {
		name   string
		layers []model.Layer
		want   string
	}{
		{"nothing", nil, "no layers"},
		{"no name", []model.Layer{layer("", first)}, `layer 0 has the name ""`},
		{"name taken", []model.Layer{layer("a", first), layer("a", last)}, `layer 1 has the name "a"`},
		{"no segments", []model.Layer{layer("a")}, "layer 0 (a) has no segments"},
		{"reads before the first", []model.Layer{layer("a", last)}, `reads port "x", but nothing comes before it`},
		{"port name", []model.Layer{layer("a", first), layer("b", segment(ports(y), ports(loss)))}, "layer 1 (b), segment fake reads ports [{y 4 0}], but the segment before writes [{x 4 0}]"},
		{"port size", []model.Layer{layer("a", first, segment(ports(model.Port{Name: "x", PerToken: 5}), ports(loss)))}, "reads ports [{x 5 0}]"},
		{"port count", []model.Layer{layer("a", segment(nil, ports(x, y)), last)}, "but the segment before writes [{x 4 0} {y 4 0}]"},
		{"two ports between layers", []model.Layer{layer("a", segment(nil, ports(x, y))), layer("b", segment(ports(x, y), ports(loss)))}, "layer 0 (a) writes 2 ports"},
		{"no loss", []model.Layer{layer("a", first)}, "the last segment writes [{x 4 0}]"},
		{"empty shape", []model.Layer{layer("a", segment(nil, ports(loss), param("w", 3, 0)))}, `parameter "w" has shape [3 0]`},
		{"nameless parameter", []model.Layer{layer("a", segment(nil, ports(loss), param("", 3)))}, `parameter "" has shape [3]`},
		{"tied shapes differ", []model.Layer{layer("a", segment(nil, ports(x), param("w", 3, 4))), layer("b", segment(ports(x), ports(loss), param("w", 4, 3)))}, `a tied parameter must agree`},
		{"tied inits differ", []model.Layer{layer("a", segment(nil, ports(x), param("w", 3))), layer("b", segment(ports(x), ports(loss), model.Param{Name: "w", Shape: []int{3}, Init: model.Init{Kind: model.Ones}}))}, `a tied parameter must agree`},
		{"used twice in a segment", []model.Layer{layer("a", segment(nil, ports(loss), param("w", 3), param("w", 3)))}, `uses parameter "w" twice`},
		{"used twice in a layer", []model.Layer{layer("a", segment(nil, ports(x), param("w", 3)), segment(ports(x), ports(loss), param("w", 3)))}, `uses parameter "w" twice`},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := model.New("fake", 8, 8, c.layers)
			if err == nil {
				t.Fatalf("built %v", m)
			}
			if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q does not say %q in one line", err, c.want)
			}
		})
	}
}

// tied is a model whose tied parameter t stands between the parameters of both of its layers.
func tied(t *testing.T) *model.Model {
	t.Helper()
	m, err := model.New("fake", 8, 8, []model.Layer{
		layer("a", segment(nil, ports(x), param("a1", 2), param("t", 2, 2), param("a2", 3))),
		layer("b", segment(ports(x), ports(x), param("b1", 5))),
		layer("c", segment(ports(x), ports(x), param("c1", 1), param("t", 2, 2)), segment(ports(x), ports(loss), param("c2", 2))),
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestBucketsAndPlaces(t *testing.T) {
	m := tied(t)
	type bucket struct {
		name    string
		params  string
		offsets []int
		len     int
		uses    []int
	}
	want := []bucket{
		{"a", "a1 a2", []int{0, 2}, 5, []int{0}},
		{"t", "t", []int{0}, 4, []int{0, 2}},
		{"b", "b1", []int{0}, 5, []int{1}},
		{"c", "c1 c2", []int{0, 1}, 3, []int{2}},
	}
	if len(m.Buckets()) != len(want) {
		t.Fatalf("%d buckets, want %d", len(m.Buckets()), len(want))
	}
	for i, b := range m.Buckets() {
		var names []string
		for _, p := range b.Params {
			names = append(names, p.Name)
		}
		w := want[i]
		if b.Name != w.name || strings.Join(names, " ") != w.params || !slices.Equal(b.Offsets, w.offsets) || b.Len != w.len || !slices.Equal(b.Uses, w.uses) {
			t.Errorf("bucket %d is %+v, want %+v", i, b, w)
		}
	}
	for _, c := range []struct {
		layer, segment int
		want           []model.Place
	}{
		{0, 0, []model.Place{{Bucket: 0, Offset: 0, Len: 2}, {Bucket: 1, Len: 4}, {Bucket: 0, Offset: 2, Len: 3}}},
		{1, 0, []model.Place{{Bucket: 2, Len: 5}}},
		{2, 0, []model.Place{{Bucket: 3, Len: 1}, {Bucket: 1, Use: 1, Len: 4}}},
		{2, 1, []model.Place{{Bucket: 3, Offset: 1, Len: 2}}},
	} {
		if got := m.Places(c.layer, c.segment); !slices.Equal(got, c.want) {
			t.Errorf("places of layer %d segment %d are %+v, want %+v", c.layer, c.segment, got, c.want)
		}
	}
	if !slices.Equal(m.LayerBuckets(2), []int{3, 1}) {
		t.Errorf("buckets of layer 2: %v", m.LayerBuckets(2))
	}
	if m.Len() != 17 {
		t.Errorf("%d parameters, want 17: a tied one counts once", m.Len())
	}
	if c := m.LayerCost(2, 3, 8); c.Forward != 6 {
		t.Errorf("cost of layer 2 is %+v; its two segments cost 3 each", c)
	}
}
