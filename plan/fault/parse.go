package fault

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/troupe-train/troupe/plan"
)

// Parse reads the text form: a fault a line. The error names the line, what was given and what is legal.
func Parse(text string) ([]Fault, error) {
	var faults []Fault
	for i, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		f, err := ParseLine(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		faults = append(faults, f)
	}
	return faults, nil
}

// ParseLine reads one fault.
func ParseLine(line string) (Fault, error) {
	p := parser{words: strings.Fields(line)}
	f, err := p.fault()
	if err != nil {
		return Fault{}, fmt.Errorf("%q: %w", line, err)
	}
	return f, nil
}

type parser struct{ words []string }

// next takes a word; it is empty at the end.
func (p *parser) next() string {
	if len(p.words) == 0 {
		return ""
	}
	w := p.words[0]
	p.words = p.words[1:]
	return w
}

// is takes the next word if it is the given one.
func (p *parser) is(word string) bool {
	if len(p.words) == 0 || p.words[0] != word {
		return false
	}
	p.words = p.words[1:]
	return true
}

func (p *parser) must(word string) error {
	if p.is(word) {
		return nil
	}
	return fmt.Errorf("%q stands where %q is due", p.next(), word)
}

func (p *parser) fault() (Fault, error) {
	f := Fault{At: Point{Micro: Any, Bucket: Any}}
	given := p.next()
	for k := Kind(1); k < kinds; k++ {
		if k.String() == given {
			f.Kind = k
		}
	}
	if f.Kind == 0 {
		return f, fmt.Errorf("there is no fault %q; legal: %s", given, strings.Join(names[1:], ", "))
	}
	if err := p.target(&f); err != nil {
		return f, err
	}
	if err := p.must("at"); err != nil {
		return f, err
	}
	if err := p.point(&f); err != nil {
		return f, err
	}
	return f, p.options(&f)
}

func (p *parser) target(f *Fault) (err error) {
	switch f.Kind.target() {
	case anActor:
		f.Actor, err = actor(p.next())
	case aNode:
		f.Node, err = number(p.next())
	case someNodes:
		for _, w := range strings.Split(p.next(), ",") {
			n, err := number(w)
			if err != nil {
				return err
			}
			f.Nodes = append(f.Nodes, n)
		}
	case someShares:
		f.Shares = plan.Shares(p.next())
		_, err = f.Shares.Counts()
	case aMessage:
		if f.Value, err = value(p.next()); err != nil {
			return err
		}
		for _, end := range []struct {
			word string
			to   *plan.ActorID
		}{{"from", &f.From}, {"to", &f.To}} {
			if err := p.must(end.word); err != nil {
				return err
			}
			if p.is("any") {
				continue
			}
			if *end.to, err = actor(p.next()); err != nil {
				return err
			}
		}
	}
	return err
}

func (p *parser) point(f *Fault) (err error) {
	at := &f.At
	message := f.Kind.target() == aMessage
	if len(p.words) > 0 && !message {
		if a, err := actor(p.words[0]); err == nil {
			at.Actor = a
			p.next()
		}
		p.operation(at)
	} else {
		p.is("any") // of a message nothing more need be said
	}
	if at.Actor == "" && f.Actor == "" && !message {
		return fmt.Errorf("it strikes no actor, so the point must name one after at")
	}
	for !p.is("of") {
		switch w := p.next(); w {
		case "value":
			if message {
				return fmt.Errorf("the value is named before the sender")
			}
			at.Value, err = value(p.next())
		case "micro-batch":
			at.Micro, err = number(p.next())
		case "bucket":
			at.Bucket, err = number(p.next())
		case "number":
			at.Number, err = number(p.next())
		default:
			return fmt.Errorf("%q stands where value, micro-batch, bucket, number or of is due", w)
		}
		if err != nil {
			return err
		}
	}
	phase := p.next()
	for at.Round.Phase < plan.Phases && at.Round.Phase.String() != phase {
		at.Round.Phase++
	}
	if at.Round.Phase == plan.Phases {
		return fmt.Errorf("there is no phase %q; init, recover, evaluate, snapshot and train are legal", phase)
	}
	if err := p.must("step"); err != nil {
		return err
	}
	step, err := strconv.ParseInt(p.next(), 10, 64)
	if err != nil || step < 0 {
		return fmt.Errorf("a step is a whole number from 0 up")
	}
	at.Round.Step = step
	return nil
}

// operation takes the name of a kind of operation, if there is one.
func (p *parser) operation(at *Point) {
	if p.is("any") {
		return
	}
	for k := plan.OpKind(1); k.Valid(); k++ {
		if p.is(k.String()) {
			at.Op = k
			return
		}
	}
}

func (p *parser) options(f *Fault) (err error) {
	for len(p.words) > 0 {
		switch w := p.next(); {
		case w == "for" && f.Kind.timed():
			f.For, err = duration(p.next())
			if err == nil && f.For <= 0 && f.Kind != JumpClock {
				err = fmt.Errorf("it lasts %s; times above 0 are legal", f.For)
			}
		case w == "factor" && f.Kind.factored():
			f.Factor, err = strconv.ParseFloat(p.next(), 64)
			if err != nil {
				err = fmt.Errorf("the factor is no number; 1 to %g are legal", maxFactor)
			} else if !(f.Factor >= 1 && f.Factor <= maxFactor) {
				err = fmt.Errorf("the factor is %g; 1 to %g are legal", f.Factor, maxFactor)
			}
		case w == "times":
			if f.Times, err = number(p.next()); err == nil && f.Times == 0 {
				err = fmt.Errorf("it strikes 0 times; 1 and more are legal")
			}
		case w == "value" || w == "micro-batch" || w == "bucket" || w == "number":
			return fmt.Errorf("%q belongs to the point, and stands before of: at ... %s of %s step %d", w, strings.TrimSpace(w+" "+p.next()), f.At.Round.Phase, f.At.Round.Step)
		default:
			return fmt.Errorf("%q means nothing for %s", w, f.Kind)
		}
		if err != nil {
			return err
		}
	}
	if f.For == 0 && f.Kind.timed() && f.Kind != Hang && f.Kind != Slow {
		return fmt.Errorf("%s needs a time: for DURATION", f.Kind)
	}
	if f.Factor == 0 && f.Kind.factored() {
		return fmt.Errorf("%s needs a factor: factor X", f.Kind)
	}
	return nil
}

// maxFactor is how many times as long an operation may take: so slow is as good as hung, and times can still be counted.
const maxFactor = 1e6

func actor(w string) (plan.ActorID, error) {
	a := plan.ActorID(w)
	if a == plan.Trainer {
		return a, nil
	}
	p, d, ok := a.Rank()
	for _, id := range []plan.ActorID{plan.StageID(p, d), plan.ShardID(p, d), plan.MirrorID(p, d)} {
		if ok && a == id {
			return a, nil
		}
	}
	return "", fmt.Errorf("%q is no actor; trainer, stage.p0.d0, shard.p0.d0 and mirror.p0.d0 are some", w)
}

func duration(w string) (time.Duration, error) {
	d, err := time.ParseDuration(w)
	if err != nil {
		return 0, fmt.Errorf("%q is no time; 300ms, 2s and 1h are some", w)
	}
	return d, nil
}

func number(w string) (int, error) {
	n, err := strconv.Atoi(w)
	if err != nil || n < 0 || n > math.MaxInt32 {
		return 0, fmt.Errorf("%q is no number from 0 to %d", w, math.MaxInt32)
	}
	return n, nil
}

func value(w string) (plan.Kind, error) {
	if w == "any" {
		return 0, nil
	}
	for k := plan.Kind(1); k.Valid(); k++ {
		if word(k) == w {
			return k, nil
		}
	}
	return 0, fmt.Errorf("%q is no kind of value; any, tokens, activation, gradient and parameters are some", w)
}
