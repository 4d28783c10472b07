package share

import (
	"errors"
	"slices"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
)

// Problem is a daemon that should serve prepared claims and does not.
type Problem struct {
	// Daemon is the name of the daemon.
	Daemon string
	// Err is why the daemon does not serve the claims.
	Err error
	// Claims are the claims of the daemon. claim.Manager.Rejoin restarts it for any of them.
	Claims []ledger.ClaimRef
	// Devices are the shares of the claims, which are unhealthy now.
	Devices []ledger.Device
}

var errNoDaemon = errors.New("the MPS daemon does not exist any more")

// Check finds dead daemons of prepared claims. It leaves out daemons of claims that are still
// being prepared, and daemons that are starting. claim.Manager.Reconcile stops daemons that no
// claim needs.
//
// Check is fast, takes no lock and changes nothing. It may report the daemon of a claim that is
// being released, for which Rejoin does nothing.
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

// dead says why a daemon does not work; nil if it does or is starting.
func (s *Sharer) dead(id string) error {
	status := s.cfg.Daemons().Status(id)
	if status.Gone {
		return errNoDaemon
	}
	return status.Err
}
