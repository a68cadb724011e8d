package tests

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
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
	"github.com/troupe-train/troupe/plan"
	"github.com/troupe-train/troupe/supervisor"
)

// intruder is a NATS server that has the token of a run and joins its cluster without being a node.
// It writes to the subjects of actors whatever it likes.
type intruder struct {
	server *server.Server
	conn   *nats.Conn
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
	return &intruder{s, c}
}

// annoy writes random bytes to every actor.
func (x *intruder) annoy(t testing.TB, actors []plan.Actor, round uint64) {
	for i, a := range actors {
		b := make([]byte, random.Block(3, round, uint64(i))[0]%3000)
		for j := range b {
			b[j] = byte(random.Block(4, round, uint64(i*len(b)+j))[0])
		}
		if len(b) >= 8 && round%3 == 0 { // the length of a header that fits
			binary.LittleEndian.PutUint32(b[4:], uint32(len(b)-8))
		}
		if err := x.conn.Publish("troupe.small.actor."+string(a.ID), b); err != nil {
			t.Error(err)
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

// TestRandomBytes: random bytes on the subjects of actors change nothing, are counted, and are told once.
func TestRandomBytes(t *testing.T) {
	set := []string{"layout.pipeline=3", "layout.data=2", "train.steps=60"}
	want := train(t, set)
	j := job(t, set...)
	m, err := supervisor.BuildModel(j, 256)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.New(j, m, plan.Options{Nodes: 2})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var notes []string
	var x *intruder
	rounds := uint64(0)
	got, err, ends := companyAt(context.Background(), t, set, supervisor.Cluster{
		Nodes: 2, Listen: "127.0.0.1:0",
		Spawn: func(_ context.Context, number int, address, token string, _ func(error)) error {
			if number == 1 {
				x = newIntruder(t, address, token)
			}
			return nil
		},
	}, supervisor.WithProgress(func(e supervisor.Progress) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case e.Note != nil:
			notes = append(notes, *e.Note)
		case e.Step != nil:
			x.annoy(t, p.Actors, rounds)
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
	if told == 0 || counted < told || told > 10 {
		t.Errorf("%d kinds of noise are told, %d counted:\n%s", told, counted, strings.Join(notes, "\n"))
	}
}
