package machine

// Closer is a Machine that holds payloads. A shell calls Close once, after the last Handle and
// when nothing runs on the actor's stream any more; the effects are Drops.
type Closer interface {
	Machine
	Close() []Effect
}

var _ Closer = (*Walker)(nil)
