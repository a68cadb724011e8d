package checkpoint

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/troupe-train/troupe/checkpoint/safetensors"
)

func FuzzManifest(f *testing.F) {
	good, err := newManifest(tiny(3), []fileEntry{{"shard-00000.safetensors", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", ""}}).marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"format":"troupe checkpoint","version":1}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := parseManifest(text)
		if err != nil {
			return
		}
		again, err := newManifest(m.meta(), m.Files).marshal()
		if err != nil || !bytes.Equal(again, text) {
			t.Fatalf("a manifest that is not what marshal gives was taken: %v\n%s\n%s", err, text, again)
		}
	})
}

func FuzzTensorName(f *testing.F) {
	f.Add("weight/block0.mlp[3].w[0:8]")
	f.Add("m/[0:1]")
	f.Add("v/x[1:0]")
	f.Add("v/x[00:1]")
	f.Fuzz(func(t *testing.T, s string) {
		kind, name, lo, hi, ok := parseTensorName(s)
		if ok && (lo < 0 || lo >= hi || tensorName(kind, name, lo, hi) != s) {
			t.Fatalf("%q is %q, %q, [%d:%d]", s, kind, name, lo, hi)
		}
	})
}

// FuzzShard puts any bytes in the place of a shard, with a manifest that has the right hashes for
// them: behind the hashes nothing else may break.
func FuzzShard(f *testing.F) {
	dir := f.TempDir()
	mustSave(f, dir, 1)
	for _, name := range []string{"shard-00000.safetensors", "shard-00001.safetensors"} {
		text, err := os.ReadFile(filepath.Join(dir, "step-00000001", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	m := tiny(1)
	m.Parameters, m.Kinds = m.Parameters[2:], m.Kinds[:1]
	h := safetensors.Header{Tensors: []safetensors.Tensor{{Name: tensorName(Weight, "head.bias", 0, 1), DType: safetensors.F32, Shape: []int{1}}}}
	must(f, h.Place())
	head, err := h.Marshal()
	must(f, err)
	good := append(head, "abcd"...)
	f.Add(good)
	f.Fuzz(func(t *testing.T, shard []byte) {
		dir := t.TempDir()
		path := filepath.Join(dir, "step-00000001")
		must(t, os.Mkdir(path, 0o755))
		h := newHashes()
		for at := 0; at < len(shard); at += blockSize {
			h.add(shard[at:min(at+blockSize, len(shard))])
		}
		text, err := newManifest(m, []fileEntry{h.entry("shard-00000.safetensors")}).marshal()
		must(t, err)
		must(t, os.WriteFile(filepath.Join(path, manifestName), text, 0o644))
		must(t, os.WriteFile(filepath.Join(path, "shard-00000.safetensors"), shard, 0o644))
		c, err := Open(dir)
		if err != nil {
			if bytes.Equal(shard, good) {
				t.Fatal(err)
			}
			return
		}
		defer c.Close()
		if err := c.Read("head.bias", Weight, 0, 1, make([]float32, 1)); err != nil {
			t.Fatal(err)
		}
		must(t, c.AllRead())
	})
}
