package main

import (
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-train/troupe/supervisor"
)

// TestReachable: what is printed for others to join at is an address, not the word for all of them.
func TestReachable(t *testing.T) {
	for _, address := range []string{"127.0.0.1:7400", "10.1.2.3:7400", "[fe80::1]:7400", "trainer:7400"} {
		if got := reachable(address); !slices.Equal(got, []string{address}) {
			t.Errorf("%s: %q", address, got)
		}
	}
	for _, address := range []string{"0.0.0.0:7400", "[::]:7400", ":7400"} {
		got := reachable(address)
		if len(got) == 0 {
			t.Errorf("%s: nothing", address)
		}
		for _, a := range got {
			host, port, err := net.SplitHostPort(a)
			ip := net.ParseIP(host)
			if err != nil || port != "7400" || ip == nil || ip.IsUnspecified() || address == "0.0.0.0:7400" && ip.To4() == nil {
				t.Errorf("%s: %q", address, a)
			}
		}
	}
}

// TestTowards: a node is reached by others as it reaches the launched job.
func TestTowards(t *testing.T) {
	if got := towards("127.0.0.1:7400"); got != "127.0.0.1:0" {
		t.Errorf("%q", got)
	}
	if got := towards("nowhere.invalid:7400"); got != "127.0.0.1:0" {
		t.Errorf("%q", got)
	}
	if got := reachable("0.0.0.0:7400")[0]; !strings.HasPrefix(got, "127.") {
		host, _, _ := net.SplitHostPort(got)
		if to := towards(got); to != net.JoinHostPort(host, "0") {
			t.Errorf("to %s: %q", got, to)
		}
	}
}

// TestEnding: a node that has ended by itself says why, and one that was told to leave has not.
func TestEnding(t *testing.T) {
	status := errors.New("exit status 1")
	for _, c := range []struct {
		byItself bool
		last     string
		quit     bool
		says     string
	}{
		{true, "troupe: refused: wrong token", true, "node 1 has ended: exit status 1: refused: wrong token"},
		{true, "step 3", true, "node 1 has ended: exit status 1"},
		{true, "troupe: interrupted before this node had joined a run", false, "node 1 has ended: interrupted"},
		{false, "troupe: something", false, "node 1 has ended: exit status 1"},
	} {
		err := ending(1, status, c.byItself, c.last)
		if err.Error() != c.says || errors.As(err, new(supervisor.Quit)) != c.quit {
			t.Errorf("%+v: %v (%T)", c, err, err)
		}
	}
}
