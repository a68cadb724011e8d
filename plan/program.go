package plan

import (
	"fmt"
	"strconv"
	"strings"
)

// ActorID names an actor: "trainer", "stage.p1.d0", "shard.p1.d0", "mirror.p1.d0" (pipeline rank, data rank). It
// is the same in every layout that has the actor, and is legal inside a NATS subject.
type ActorID string

// Trainer is the one actor that starts and commits steps.
const Trainer ActorID = "trainer"

// StageID, ShardID and MirrorID name the actors of pipeline rank p and data rank d. The mirror of
// a shard holds the same state, on another node where there is one.
func StageID(p, d int) ActorID  { return ActorID(fmt.Sprintf("stage.p%d.d%d", p, d)) }
func ShardID(p, d int) ActorID  { return ActorID(fmt.Sprintf("shard.p%d.d%d", p, d)) }
func MirrorID(p, d int) ActorID { return ActorID(fmt.Sprintf("mirror.p%d.d%d", p, d)) }

// Role is "trainer", "stage", "shard" or "mirror".
func (a ActorID) Role() string {
	role, _, _ := strings.Cut(string(a), ".")
	return role
}

// Rank returns the pipeline and data rank of a stage, shard or mirror.
func (a ActorID) Rank() (pipeline, data int, ok bool) {
	parts := strings.Split(string(a), ".")
	if len(parts) != 3 || len(parts[1]) < 2 || parts[1][0] != 'p' || len(parts[2]) < 2 || parts[2][0] != 'd' {
		return 0, 0, false
	}
	p, err1 := strconv.Atoi(parts[1][1:])
	d, err2 := strconv.Atoi(parts[2][1:])
	return p, d, err1 == nil && err2 == nil
}

// Phase is a kind of round. Every actor has one program for each phase. The phases of one step
// run in this order, all on the weights that step committed steps have made.
type Phase uint8

const (
	// InitPhase gives every shard its state (fresh from the seed, or from a checkpoint) and every stage its parameters.
	InitPhase Phase = iota
	// RecoverPhase gives an actor that begins a new life the state at the start of the step. Only that
	// actor walks it, before it walks the round that is open; see Offer.
	RecoverPhase
	// EvaluatePhase runs forward on held-out text.
	EvaluatePhase
	// SnapshotPhase brings the state of every shard to the trainer, which writes a checkpoint.
	SnapshotPhase
	// TrainPhase runs the step that makes weights step+1 of weights step.
	TrainPhase
	Phases
)

func (p Phase) String() string {
	if p < Phases {
		return [...]string{"init", "recover", "evaluate", "snapshot", "train"}[p]
	}
	return fmt.Sprintf("Phase(%d)", uint8(p))
}

// Round is one run of one program of every actor. Rounds are totally ordered by step and phase.
type Round struct {
	Step  int64
	Phase Phase
	// Shares are those of a training step that is not run by the shares of the plan. They are a part of the round's
	// name, so whoever hears of a round knows its programs: also one that joins in the middle of it.
	Shares Shares
}

// Bare is the round without its shares: its place in the order.
func (r Round) Bare() Round { return Round{Step: r.Step, Phase: r.Phase} }

// Before reports whether r comes before s.
func (r Round) Before(s Round) bool {
	return r.Step < s.Step || r.Step == s.Step && r.Phase < s.Phase
}

func (r Round) String() string { return fmt.Sprintf("%s step %d", r.Phase, r.Step) }

// Kind is what a value is.
type Kind uint8

const (
	// Start opens a round at an actor and commits all rounds before it. Trainer to everyone.
	Start Kind = iota + 1
	// Tokens and Targets of micro-batch Lo: I32 [rows*context]. Trainer to the first and last stage.
	Tokens
	Targets
	// Activation is the input of layer Index for micro-batch Lo; ActivationGrad is its gradient.
	Activation
	ActivationGrad
	// Saved is what F of chunk Index keeps for B and W of micro-batch Lo. It never leaves the stage.
	Saved
	// Stashed is what B of chunk Index adds for W of micro-batch Lo. It never leaves the stage.
	Stashed
	// Loss is the sum of the losses of the tokens of micro-batch Lo: F64 [1].
	Loss
	// Gradient is the gradient of use Use of bucket Index, summed over the node [Lo, Hi) of the tree
	// over micro-batches. With Piece >= 0 it is the range that belongs to that shard.
	Gradient
	// Reduced is the gradient of a shard's piece of bucket Index, summed over everything.
	Reduced
	// Norm is the sums of squares of the blocks of the Reduced of shard (pipeline Index, data Piece), bucket
	// by bucket: F64.
	Norm
	// Verdict is the trainer's decision on the step: F64 [1], the factor that clips the gradient.
	Verdict
	// Parameters is shard Piece's range of bucket Index; with Piece < 0 the whole bucket, in place at a
	// stage. With Use 1 they are those of the start of the step, at who offers them.
	Parameters
	// State is the weights and optimizer moments of shard (pipeline Index, data Piece).
	State
	// Report is what an actor tells the trainer when its program has ended.
	Report
	kinds
)

func (k Kind) String() string {
	if k > 0 && k < kinds {
		return [...]string{"start", "tokens", "targets", "activation", "activation gradient", "saved", "stashed", "loss", "gradient",
			"reduced gradient", "norm", "verdict", "parameters", "state", "report"}[k-1]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Valid reports whether k is a kind of value.
func (k Kind) Valid() bool { return k > 0 && k < kinds }

// Value names something that an operation reads or writes. Together with the round it is unique
// at an actor, and it is the last part of a message's name. Fields that a kind does not use are 0;
// Piece is -1 where there is none. Micro-batches are numbered over the whole batch, so that names do not depend on the layout.
type Value struct {
	Kind   Kind
	Index  int
	Use    int
	Lo, Hi int
	Piece  int
}

func (v Value) String() string {
	switch v.Kind {
	case Tokens, Targets, Loss:
		return fmt.Sprintf("%s micro-batch %d", v.Kind, v.Lo)
	case Activation, ActivationGrad:
		return fmt.Sprintf("%s into layer %d micro-batch %d", v.Kind, v.Index, v.Lo)
	case Saved, Stashed:
		return fmt.Sprintf("%s chunk %d micro-batch %d", v.Kind, v.Index, v.Lo)
	case Gradient:
		s := fmt.Sprintf("gradient bucket %d use %d micro-batches %d..%d", v.Index, v.Use, v.Lo, v.Hi-1)
		if v.Piece >= 0 {
			s += fmt.Sprintf(" piece %d", v.Piece)
		}
		return s
	case Reduced, Parameters:
		s := fmt.Sprintf("%s bucket %d", v.Kind, v.Index)
		if v.Use > 0 {
			s = "old " + s
		}
		if v.Piece >= 0 {
			s += fmt.Sprintf(" piece %d", v.Piece)
		}
		return s
	case Norm, State:
		return fmt.Sprintf("%s of %s", v.Kind, ShardID(v.Index, v.Piece))
	case Report:
		return fmt.Sprintf("report %d", v.Index)
	}
	return v.Kind.String()
}

// OpKind is what an operation does.
type OpKind uint8

const (
	// Receive says that the value in Writes will come from Peer. It does not wait: what reads the value waits.
	Receive OpKind = iota + 1
	// Send sends the value in Reads to Peer, under the name in As.
	Send
	// Feed makes Tokens and Targets of a micro-batch (trainer).
	Feed
	// Forward, BackwardInput, BackwardWeight of chunk Chunk (layers Lo..Hi-1) and micro-batch Micro.
	Forward
	BackwardInput
	BackwardWeight
	// Add is the node of the gradient tree in Writes from its two children in Reads. The children end with it.
	Add
	// Load copies the pieces in Reads into the bucket's parameters (stage).
	Load
	// Restore gives a shard or mirror its state: from the State in Reads, or from the seed if there is
	// none. In Init a shard's writes its pieces of Parameters.
	Restore
	// Reduce sums gradients over tree nodes and uses in canonical order (shard).
	Reduce
	// SquareNorm writes Norm from all Reduced of a shard.
	SquareNorm
	// Decide writes Verdict from all Norm and Loss (trainer).
	Decide
	// Update makes the new Parameters of a shard's piece of a bucket from Reduced and Verdict. The
	// shard keeps its state and both of them: the state at the start of the step must last until the commit.
	Update
	// Hold keeps all Reduced of a shard and the Verdict at its mirror.
	Hold
	// Advance brings the state of a shard or mirror to the step of the round: when the step before has
	// committed, what was held is applied. Where stages recover from it, it writes the pieces of Parameters.
	Advance
	// Offer says that Peer may have the message As of the Recover round of this step: when Peer begins a
	// new life in this round, it is sent. It is the value in Reads, or, without Reads, what the
	// operation writes when it is run for the first Peer that needs it.
	Offer
	// Collect writes State (shard: its own; trainer in Init: from the checkpoint).
	Collect
	// Finish writes Report: the actor's program has ended. At the trainer it reads all reports.
	Finish
	opKinds
)

func (k OpKind) String() string {
	if k > 0 && k < opKinds {
		return [...]string{"receive", "send", "feed", "forward", "backward-input", "backward-weight", "add", "load", "restore", "reduce",
			"square-norm", "decide", "update", "hold", "advance", "offer", "collect", "finish"}[k-1]
	}
	return fmt.Sprintf("OpKind(%d)", uint8(k))
}

// Valid reports whether k is a kind of operation.
func (k OpKind) Valid() bool { return k > 0 && k < opKinds }

// Op is one operation of a program.
type Op struct {
	Kind OpKind
	// Chunk is the index of the chunk at its rank; Lo and Hi are its layers. Bucket is for Add, Load, Reduce, Update.
	Chunk  int
	Lo, Hi int
	Bucket int
	Micro  int
	// Peer is for Send, Receive and Offer, As for Send and Offer.
	Peer ActorID
	As   Value
	// Reads must be there before the operation starts; Writes are there when it is complete;
	// Frees are the values that nothing later in the program reads. An operation never writes a value
	// that it reads.
	Reads, Writes, Frees []Value
}

func (o Op) String() string {
	switch o.Kind {
	case Send:
		return fmt.Sprintf("send %s to %s", o.As, o.Peer)
	case Receive:
		return fmt.Sprintf("receive %s from %s", o.written(), o.Peer)
	case Offer:
		return fmt.Sprintf("offer %s to %s", o.As, o.Peer)
	case Forward, BackwardInput, BackwardWeight:
		return fmt.Sprintf("%s layers %d..%d micro-batch %d", o.Kind, o.Lo, o.Hi-1, o.Micro)
	case Feed:
		return fmt.Sprintf("feed micro-batch %d", o.Micro)
	case Add:
		return fmt.Sprintf("add %s", o.written())
	case Load, Reduce, Update:
		return fmt.Sprintf("%s bucket %d", o.Kind, o.Bucket)
	}
	return o.Kind.String()
}

// written is the only value that the operation writes, or "nothing".
func (o Op) written() string {
	if len(o.Writes) != 1 {
		return values(o.Writes)
	}
	return o.Writes[0].String()
}

// Program is what one actor does in one round. Operations start in order: one whose Reads are not
// all there holds back those after it, except that Receive never waits. So the actors of a plan form a network of
// deterministic processes (Kahn 1974): if the programs finish under one timing of the messages, they finish under every timing, with the same values.
type Program struct {
	Actor ActorID
	Phase Phase
	Ops   []Op
}
