package actors

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/troupe-train/troupe/messages"
)

// ServerOptions are what a Server is made from.
type ServerOptions struct {
	// Job is the name of the job, and Token the secret of the run. Nodes that do not have both are refused.
	Job, Token string
	// Listen is the host:port where the servers of other nodes connect; port 0 takes a free one.
	// "127.0.0.1:0" if empty.
	Listen string
	// Advertise is the host:port under which other nodes reach Listen; needed only where it is not the
	// address that connections come from.
	Advertise string
	// Join is the address of the server of a node that is part of the run; empty at the coordinator.
	Join string
	// There says that the server to be joined listens already: if nobody does, the run is over.
	There bool
	// Log gets lines for people; nil throws them away.
	Log func(line string)
	// Valve and Clock are for faults to strike. They outlive the server, and nil ones are not struck.
	Valve *Valve
	Clock *Clock
}

// Errors of StartServer and Join that callers act on.
var (
	ErrWrongToken = errors.New("refused: wrong token")
	ErrTaken      = errors.New("address already in use")
)

// The accounts of a run. Routes of an account are connections of its own, so that a heartbeat does
// not wait behind a tensor.
const (
	controlAccount = "CTRL"
	dataAccount    = "DATA"
)

// Server is the NATS server of a node. The servers of a run form a full mesh by routes; messages go
// straight from node to node.
type Server struct {
	options ServerOptions
	nats    *server.Server
	addr    string

	mu     sync.Mutex
	closed bool
}

// StartServer starts the server of a node. With Join it first asks who is there, until ctx ends. The
// error is ErrOver when Options say that somebody is there and nobody is, ErrTaken when the address to listen at is in use, and ErrWrongToken when the run that it
// would join has another token.
func StartServer(ctx context.Context, o ServerOptions) (*Server, error) {
	if o.Job == "" || o.Token == "" {
		return nil, errors.New("actors: a server needs the name of the job and a token")
	}
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	if o.Log == nil {
		o.Log = func(string) {}
	}
	host, port, err := splitAddress(o.Listen)
	if err != nil {
		return nil, err
	}
	var routes []*url.URL
	if o.Join != "" {
		if err := reach(ctx, o); err != nil {
			return nil, err
		}
		routes = []*url.URL{{Scheme: "nats-route", Host: o.Join, User: url.UserPassword("route", secret(o, "route"))}}
	}
	if err := free(o.Listen); err != nil {
		return nil, err
	}
	if port == 0 {
		port = -1
	}
	control, data := server.NewAccount(controlAccount), server.NewAccount(dataAccount)
	log := &serverLog{log: o.Log}
	s, err := server.NewServer(&server.Options{
		// A clustered server starts only if it also listens for clients; nobody else knows the port
		// or a password.
		Host: "127.0.0.1", Port: -1,
		NoSigs:          true,
		NoSystemAccount: true, // nobody asks it, and it would have routes of its own
		MaxPayload:      maxPayload,
		// What waits for a client is bounded by the windows of the links.
		MaxPending: 1 << 30,
		Accounts:   []*server.Account{control, data},
		Users: []*server.User{
			{Username: controlAccount, Password: secret(o, controlAccount), Account: control},
			{Username: dataAccount, Password: secret(o, dataAccount), Account: data},
		},
		Cluster: server.ClusterOpts{
			Name: clusterName(o), Host: host, Port: port, Advertise: o.Advertise,
			Username: "route", Password: secret(o, "route"),
			PoolSize: 1, PinnedAccounts: []string{controlAccount, dataAccount},
			// Nodes learn of each other through the one they joined, and must find each other again
			// after a cut as well as they find that one.
			ConnectRetries: 1 << 30,
		},
		Routes: routes,
	})
	if err != nil {
		return nil, fmt.Errorf("actors: server: %w", err)
	}
	s.SetLoggerV2(log, false, false, false)
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		s.Shutdown()
		if fatal := log.fatal(); strings.Contains(fatal, "address already in use") {
			return nil, takenError(o.Listen)
		} else if fatal != "" {
			return nil, fmt.Errorf("actors: server at %s: %s", o.Listen, fatal)
		}
		return nil, fmt.Errorf("actors: the server at %s is not ready after 10 s", o.Listen)
	}
	addr := o.Advertise
	if addr == "" {
		addr = net.JoinHostPort(host, strconv.Itoa(s.ClusterAddr().Port))
	}
	return &Server{options: o, nats: s, addr: addr}, nil
}

// maxPayload is the most bytes of one NATS message: a frame or a control message.
const maxPayload = max(messages.MaxFrame, messages.MaxControl)

// Addr is the host:port that others join.
func (s *Server) Addr() string { return s.addr }

// Valve and Clock are those of the options.
func (s *Server) Valve() *Valve { return s.options.Valve }
func (s *Server) Clock() *Clock { return s.options.Clock }

// Close ends the server and its connections.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	s.nats.Shutdown()
	s.nats.WaitForShutdown()
}

// connect opens a connection within the process. Whatever NATS reports of it after that goes to
// trouble: nothing is lost in silence.
func (s *Server) connect(account string, trouble func(error)) (*nats.Conn, error) {
	c, err := nats.Connect("",
		nats.InProcessServer(s.nats),
		nats.UserInfo(account, secret(s.options, account)),
		nats.Name(account),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(20*time.Millisecond),
		nats.ReconnectBufSize(-1), // what is not sent is sent again by its link
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			if sub != nil {
				err = fmt.Errorf("%w on %s", err, sub.Subject)
			}
			trouble(err)
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				trouble(fmt.Errorf("the connection to the own server was cut: %w", err))
			}
		}),
	)
	if err != nil {
		return nil, fmt.Errorf("actors: connection to the own server as %s: %w", account, err)
	}
	return c, nil
}

// subscribe never drops a message: the windows of the links bound what is pending.
func subscribe(c *nats.Conn, subject string, receive nats.MsgHandler) (*nats.Subscription, error) {
	sub, err := c.Subscribe(subject, receive)
	if err != nil {
		return nil, fmt.Errorf("actors: subscription to %s: %w", subject, err)
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return nil, fmt.Errorf("actors: subscription to %s: %w", subject, err)
	}
	return sub, nil
}

// secret derives what the run's token stands for in one place from the token, so that what one
// place gives away is of no use in another.
func secret(o ServerOptions, use string) string {
	h := hmac.New(sha256.New, []byte(o.Token))
	fmt.Fprintf(h, "troupe %q %q", o.Job, use)
	return hex.EncodeToString(h.Sum(nil))
}

const clusterPrefix = "troupe-"

// clusterName tells whoever asks whether they have the token, and gives nothing away.
func clusterName(o ServerOptions) string { return clusterPrefix + secret(o, "cluster")[:32] }

// CheckAddress says whether an address is one that a node can listen at or join.
func CheckAddress(address string) error {
	_, _, err := splitAddress(address)
	return err
}

func splitAddress(address string) (host string, port int, err error) {
	host, p, err := net.SplitHostPort(address)
	if err == nil {
		port, err = strconv.Atoi(p)
	}
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("actors: address %q is not host:port with a port from 0 to 65535", address)
	}
	return host, port, nil
}

// free fails when somebody listens at the address.
func free(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		if strings.Contains(err.Error(), "address already in use") {
			return takenError(address)
		}
		return fmt.Errorf("actors: cannot listen at %s: %w", address, err)
	}
	return l.Close()
}

func takenError(address string) error {
	return fmt.Errorf("actors: cannot listen at %s: %w", address, ErrTaken)
}

// serverLog keeps the reason of a failed start, and reports what could lose messages and who is refused.
type serverLog struct {
	log func(string)
	mu  sync.Mutex
	end string
}

func (l *serverLog) Fatalf(format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.end == "" {
		l.end = fmt.Sprintf(format, v...)
	}
}

func (l *serverLog) fatal() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end
}

func (l *serverLog) Noticef(format string, v ...any) { l.report(format, v) }
func (l *serverLog) Warnf(format string, v ...any)   { l.report(format, v) }
func (l *serverLog) Errorf(format string, v ...any)  { l.report(format, v) }
func (l *serverLog) Debugf(string, ...any)           {}
func (l *serverLog) Tracef(string, ...any)           {}

func (l *serverLog) report(format string, v []any) {
	text := fmt.Sprintf(format, v...)
	switch {
	case strings.Contains(text, "Slow Consumer"):
		l.log("server: " + text)
	case strings.Contains(text, server.ErrAuthentication.Error()):
		from, _, _ := strings.Cut(text, " - ")
		l.log(fmt.Sprintf("refused a node from %s: wrong token", from))
	}
}
