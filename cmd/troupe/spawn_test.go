package main

import (
	"net"
	"slices"
	"strings"
	"testing"
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
