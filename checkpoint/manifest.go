package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
)

const (
	manifestName   = "manifest.json"
	manifestFormat = "troupe checkpoint"
	manifestMax    = 1 << 30 // bytes
	// version is that of the manifest, the names of the tensors and the layout of the folder.
	version = 1
)

// fileEntry is a file of a checkpoint.
type fileEntry struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	// Blocks are the CRC-32C of each block of blockSize bytes, 8 hexadecimal digits each: they say
	// where a file is damaged.
	Blocks string `json:"crc32c"`
}

// manifest is the JSON form of the manifest. SHA256 is that of the manifest with SHA256 empty.
type manifest struct {
	Format      string      `json:"format"`
	Version     int         `json:"version"`
	Step        int64       `json:"step"`
	Fingerprint string      `json:"fingerprint"`
	Optimizer   string      `json:"optimizer"`
	Kinds       []Kind      `json:"kinds"`
	Facts       []Fact      `json:"facts"`
	Job         string      `json:"job"`
	Tokenizer   string      `json:"tokenizer"`
	Commit      string      `json:"commit,omitempty"`
	Parameters  []Parameter `json:"parameters"`
	Files       []fileEntry `json:"files"`
	SHA256      string      `json:"sha256"`
}

func newManifest(m Meta, files []fileEntry) *manifest {
	return &manifest{
		Format: manifestFormat, Version: version, Step: m.Step, Fingerprint: m.Fingerprint(), Optimizer: m.Optimizer, Kinds: m.Kinds,
		Facts: m.Facts, Job: m.Job, Tokenizer: m.Tokenizer, Commit: m.Commit, Parameters: m.Parameters, Files: files,
	}
}

func (m *manifest) meta() Meta {
	return Meta{Step: m.Step, Parameters: m.Parameters, Optimizer: m.Optimizer, Kinds: m.Kinds, Facts: m.Facts, Job: m.Job, Tokenizer: m.Tokenizer, Commit: m.Commit}
}

// marshal sets SHA256 and returns the text of the manifest.
func (m *manifest) marshal() ([]byte, error) {
	m.SHA256 = ""
	text, err := m.text()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	m.SHA256 = hex.EncodeToString(sum[:])
	return m.text()
}

func (m *manifest) text() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	err := e.Encode(m)
	return b.Bytes(), err
}

var (
	shardName = regexp.MustCompile(`^shard-[0-9]{5,9}\.safetensors$`)
	hexHash   = regexp.MustCompile(`^[0-9a-f]{64}$`)
	hexBlocks = regexp.MustCompile(`^([0-9a-f]{8})*$`)
)

// parseManifest takes exactly what marshal gives: a text that differs from it by one bit is refused.
func parseManifest(text []byte) (*manifest, error) {
	var m manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, fmt.Errorf("not a manifest: %w", err)
	}
	if m.Format != manifestFormat {
		return nil, fmt.Errorf("not a manifest: its format is %.40q, not %q", m.Format, manifestFormat)
	}
	if m.Version != version {
		return nil, fmt.Errorf("a checkpoint of version %d; legal is %d", m.Version, version)
	}
	again, err := m.marshal()
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(again, text) {
		return nil, errors.New("its hash differs from its contents")
	}
	if err := m.meta().check(); err != nil {
		return nil, err
	}
	if f := m.meta().Fingerprint(); f != m.Fingerprint {
		return nil, fmt.Errorf("the fingerprint is %s, its parts give %s", m.Fingerprint, f)
	}
	names := map[string]bool{}
	for _, f := range m.Files {
		if !shardName.MatchString(f.Name) || names[f.Name] {
			return nil, fmt.Errorf("the name of file %q is taken or not that of a shard", f.Name)
		}
		names[f.Name] = true
		if f.Bytes < 0 || !hexHash.MatchString(f.SHA256) || !hexBlocks.MatchString(f.Blocks) || int64(len(f.Blocks)) != (f.Bytes+blockSize-1)/blockSize*8 {
			return nil, fmt.Errorf("the sizes and hashes of file %s are not in order", f.Name)
		}
	}
	return &m, nil
}
