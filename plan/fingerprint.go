package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Fingerprint is a hash of everything that the actors of a plan must agree on: placement, pieces
// and programs. Nodes that make the same plan have the same one.
func (p *Plan) Fingerprint() string {
	h := sha256.New()
	fmt.Fprintln(h, p.Model.Kind, p.Model.Context, p.Model.Vocab, p.Model.Params(), p.Resume, p.Actors, p.Stages, p.Train, p.Held, p.Buckets)
	fmt.Fprintf(h, "%+v\n", p.Job.Train)
	for ph := range Phases {
		for _, a := range p.Actors {
			fmt.Fprintf(h, "%s %s %+v\n", ph, a.ID, p.Program(a.ID, ph).Ops)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}
