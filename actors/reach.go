package actors

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// reach asks the server that is to be joined for its name before a route to it is opened. NATS would
// go on trying a route with a wrong password for ever, and say so only in its log; the name of the
// cluster is derived from the token, so the first line that the other side says tells whether the
// tokens are equal. The route has its password all the same.
func reach(ctx context.Context, o ServerOptions) error {
	if _, _, err := splitAddress(o.Join); err != nil {
		return err
	}
	began := time.Now()
	for {
		name, err := greeting(ctx, o, o.Join)
		switch {
		case err == nil && name == clusterName(o):
			return nil
		case err == nil && strings.HasPrefix(name, clusterPrefix):
			return fmt.Errorf("actors: %s: %w, or another job than %q", o.Join, ErrWrongToken, o.Job)
		case errors.Is(err, errStranger):
			return fmt.Errorf("actors: %s: %w", o.Join, err)
		case err == nil:
			return fmt.Errorf("actors: %s is a NATS server, but not one of a run (its cluster is %q)", o.Join, name)
		case o.There && gone(err):
			return overAt(o.Join)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("actors: cannot reach %s since %s: %w", o.Join, time.Since(began).Round(time.Second), err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// stranger is the user as which a node with a wrong token lets itself be refused.
const stranger = "stranger"

var errStranger = errors.New("what answers there is not a node")

// answers says whether the server of a node of this run, at an address, answers before ctx ends: nil if it does.
func (s *Server) answers(ctx context.Context, address string) error {
	name, err := greeting(ctx, s.options, address)
	if err == nil && name != clusterName(s.options) {
		return errStranger
	}
	return err
}

// greeting returns the name of the cluster that the server at an address says it is in.
func greeting(ctx context.Context, o ServerOptions, address string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if at, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(at); err != nil {
			return "", err
		}
	}
	line, err := bufio.NewReader(io.LimitReader(c, 64<<10)).ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("it says nothing: %w", err)
	}
	text, ok := strings.CutPrefix(line, "INFO ")
	var info struct {
		Cluster string `json:"cluster"`
	}
	if !ok || json.Unmarshal([]byte(text), &info) != nil {
		return "", errStranger
	}
	if strings.HasPrefix(info.Cluster, clusterPrefix) && info.Cluster != clusterName(o) {
		// So that the other side says, too, whom it refused. The password is nobody's: that of another run
		// is not for it to see. What it answers changes nothing.
		if _, err := fmt.Fprintf(c, "CONNECT {\"user\":%q,\"pass\":\"\"}\r\n", stranger); err == nil {
			_, _ = io.Copy(io.Discard, c)
		}
	}
	return info.Cluster, nil
}
