package device

import (
	"fmt"
	"sort"
	"strings"
	"sync"
)

// Label says what memory is for.
type Label uint8

const (
	Parameters Label = iota
	Gradients
	Optimizer
	Activations
	Messages
	Workspace
	labels
)

func (l Label) String() string {
	return [...]string{"parameters", "gradients", "optimizer", "activations", "messages", "workspace"}[l]
}

// Account counts the device memory that one actor holds, and refuses what is over its limit.
// It is safe for concurrent use: buffers of an actor are released by the actors they were handed to.
type Account struct {
	actor string
	limit int64

	mu   sync.Mutex
	held [labels]int64
	sum  int64
	peak int64
}

// NewAccount opens an account for actor. A limit of 0 means no limit.
func NewAccount(actor string, limit int64) *Account {
	return &Account{actor: actor, limit: limit}
}

// Take charges bytes to the account.
func (a *Account) Take(l Label, bytes int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.limit > 0 && a.sum+bytes > a.limit {
		return &OutOfMemory{Actor: a.actor, Asked: bytes, For: l, Held: a.sum, Limit: a.limit, Detail: a.detail()}
	}
	a.held[l] += bytes
	a.sum += bytes
	a.peak = max(a.peak, a.sum)
	return nil
}

// Give returns bytes that were taken under the same label.
func (a *Account) Give(l Label, bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held[l] -= bytes
	a.sum -= bytes
	if a.held[l] < 0 {
		panic(fmt.Sprintf("device: account of %s gives back %d bytes of %s that it does not hold", a.actor, -a.held[l], l))
	}
}

// Held is the bytes charged now; Peak is the most there ever were.
func (a *Account) Held() int64 { a.mu.Lock(); defer a.mu.Unlock(); return a.sum }
func (a *Account) Peak() int64 { a.mu.Lock(); defer a.mu.Unlock(); return a.peak }

// HeldFor is the bytes charged now under one label.
func (a *Account) HeldFor(l Label) int64 { a.mu.Lock(); defer a.mu.Unlock(); return a.held[l] }

func (a *Account) detail() string {
	type row struct {
		l Label
		n int64
	}
	var rows []row
	for l, n := range a.held {
		if n > 0 {
			rows = append(rows, row{Label(l), n})
		}
	}
	sort.Slice(rows, func(i, j int) bool { return rows[i].n > rows[j].n })
	var b strings.Builder
	for i, r := range rows {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s %d", r.l, r.n)
	}
	return b.String()
}

// OutOfMemory is the error of an allocation over an account's limit. Sizes are bytes.
type OutOfMemory struct {
	Actor  string
	Asked  int64
	For    Label
	Held   int64
	Limit  int64
	Detail string
}

func (e *OutOfMemory) Error() string {
	holds := "nothing"
	if e.Held > 0 {
		holds = fmt.Sprintf("%d (%s)", e.Held, e.Detail)
	}
	return fmt.Sprintf("out of memory: %s asked for %d bytes for %s, holds %s of its limit %d", e.Actor, e.Asked, e.For, holds, e.Limit)
}
