package tests

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/troupe-train/troupe/device/random"
	"github.com/troupe-train/troupe/supervisor"
)

// intruder is a NATS server that has the token of a run and joins its cluster without being a node.
// It hears what actors are sent, and writes to their subjects whatever it likes.
type intruder struct {
	server *server.Server
	conn   *nats.Conn

	mu    sync.Mutex
	heard map[string][]byte // the last frame of each subject
}

func newIntruder(t testing.TB, address, token string) *intruder {
	t.Helper()
	secret := func(use string) string {
		h := hmac.New(sha256.New, []byte(token))
		fmt.Fprintf(h, "troupe %q %q", "small", use)
		return hex.EncodeToString(h.Sum(nil))
	}
	control, data := server.NewAccount("CTRL"), server.NewAccount("DATA")
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true, NoSystemAccount: true,
		Accounts: []*server.Account{control, data},
		Users:    []*server.User{{Username: "intruder", Password: "x", Account: data}},
		Cluster: server.ClusterOpts{
			Name: "troupe-" + secret("cluster")[:32], Host: "127.0.0.1", Port: -1,
			Username: "route", Password: secret("route"), PoolSize: 1, PinnedAccounts: []string{"CTRL", "DATA"},
		},
		Routes: []*url.URL{{Scheme: "nats-route", Host: address, User: url.UserPassword("route", secret("route"))}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(patience) {
		t.Fatal("the intruder's server is not ready")
	}
	c, err := nats.Connect("", nats.InProcessServer(s), nats.UserInfo("intruder", "x"))
	if err != nil {
		t.Fatal(err)
	}
	x := &intruder{server: s, conn: c, heard: map[string][]byte{}}
	if _, err := c.Subscribe("troupe.>", func(m *nats.Msg) {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.heard[m.Subject] = m.Data
	}); err != nil {
		t.Fatal(err)
	}
	return x
}

// annoy writes to every actor: random bytes, the last frame that it was sent with one bit wrong, and that frame again.
func (x *intruder) annoy(t testing.TB, round uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for subject, frame := range x.heard {
		key := random.Key(3, round, random.String(subject))
		noise := make([]byte, random.Block(key, 0, 0)[0]%3000)
		for i := range noise {
			noise[i] = byte(random.Block(key, 1, uint64(i))[0])
		}
		wrong := slices.Clone(frame)
		wrong[random.Block(key, 2, 0)[0]%uint32(len(wrong))] ^= 1 << (round % 8)
		for _, b := range [][]byte{noise, wrong, frame} {
			if err := x.conn.Publish(subject, b); err != nil {
				t.Error(err)
			}
		}
	}
	if err := x.conn.Flush(); err != nil {
		t.Error(err)
	}
}

func (x *intruder) close() {
	x.conn.Close()
	x.server.Shutdown()
	x.server.WaitForShutdown()
}

// TestRandomBytes: random bytes, damaged frames and repeated ones on the subjects of actors change nothing. They are counted,
// and those of one kind told once.
func TestRandomBytes(t *testing.T) {
	set := []string{"layout.pipeline=3", "layout.data=2", "train.steps=60"}
	want := train(t, set)
	var notes []string
	var x *intruder
	rounds := uint64(0)
	got, ends, err := company(context.Background(), t, set, supervisor.Cluster{
		Nodes: 2, Listen: "127.0.0.1:0",
		Spawn: func(_ context.Context, number int, address, token string, _ func(error)) error {
			if number == 1 {
				x = newIntruder(t, address, token)
			}
			return nil
		},
	}, supervisor.WithProgress(func(e supervisor.Progress) {
		switch {
		case e.Note != nil:
			notes = append(notes, *e.Note)
		case e.Step != nil:
			x.annoy(t, rounds)
			rounds++
		}
	}))
	if x != nil {
		x.close()
	}
	if err != nil || slices.ContainsFunc(ends, func(err error) bool { return err != nil }) {
		t.Fatal(err, ends)
	}
	same(t, "a run under noise", got, want)
	told, counted := 0, 0
	for _, n := range notes {
		if strings.HasPrefix(n, "refused frame: ") {
			if strings.HasSuffix(n, " in all") {
				counted++
			} else {
				told++
			}
		}
	}
	if len(x.heard) < 10 || told == 0 || counted < told || told > 10 {
		t.Errorf("%d subjects heard; %d kinds of noise told, %d counted:\n%s", len(x.heard), told, counted, strings.Join(notes, "\n"))
	}
}
