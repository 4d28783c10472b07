package share

import (
	"errors"
	"slices"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
)

// Problem is a daemon that claims hold shares through and that does not serve them.
type Problem struct {
	// Daemon is its name.
	Daemon string
	// Err is why: what it died of, or that there is none.
	Err error
	// Claims are those that it should serve. To bring it back, call
	// claim.Manager.Rejoin for any one of them.
	Claims []ledger.ClaimRef
	// Devices are their shares: they are unhealthy until it is back.
	Devices []ledger.Device
}

// errNoDaemon is what is wrong with a daemon of which nothing is left.
var errNoDaemon = errors.New("there is no such MPS daemon any more")

// Check finds the daemons that prepared claims need and that have died. Those of
// claims that are still being prepared are their Prepare's to look after, and those
// that are on their way to being ready again are left out. Daemons that no record
// explains are not looked for here: claim.Manager.Reconcile stops them.
//
// It is quick, takes no lock and changes nothing. A claim that is released
// meanwhile can show up here with a daemon that is meant to be gone; Rejoin finds
// that out.
func (s *Sharer) Check(records []ledger.Record) []Problem {
	if s.cfg.Daemons == nil {
		return nil
	}
	var problems []Problem
	fine := map[string]bool{}
	for _, r := range records {
		if r.State != ledger.Prepared {
			continue
		}
		for _, d := range r.Devices {
			id := s.Serves(r.Claim, d)
			if id == "" || fine[id] {
				continue
			}
			i := slices.IndexFunc(problems, func(p Problem) bool { return p.Daemon == id })
			if i < 0 {
				err := s.dead(id)
				if err == nil {
					fine[id] = true
					continue
				}
				problems = append(problems, Problem{Daemon: id, Err: err})
				i = len(problems) - 1
			}
			p := &problems[i]
			p.Devices = append(p.Devices, d)
			if !slices.Contains(p.Claims, r.Claim) {
				p.Claims = append(p.Claims, r.Claim)
			}
		}
	}
	return problems
}

// dead says why a daemon does not serve, nil if it does or soon will.
func (s *Sharer) dead(id string) error {
	status := s.cfg.Daemons.Status(id)
	if status.Gone {
		return errNoDaemon
	}
	return status.Err
}
