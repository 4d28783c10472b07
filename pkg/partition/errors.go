package partition

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/profile"
)

var (
	// errForeign: foreign partitions are in the way.
	errForeign = errors.New("was not created by Tranche")
	// errUnfit: GPUs cannot have the desired layout.
	errUnfit = errors.New("the profile does not fit")
)

// unfit is an errUnfit with a text of its own.
type unfit string

func (u unfit) Error() string { return string(u) }

func (u unfit) Is(target error) bool { return target == errUnfit }

// gpuError is an error that concerns GPUs, by PCI address.
type gpuError struct {
	error
	gpus []string
}

func (e *gpuError) Unwrap() error { return e.error }

// about assigns GPUs to those of the joined errors that concern none yet.
func about(err error, gpus ...string) error {
	all := slices.Clone(each(err))
	for i, e := range all {
		// A wrapped one concerns all of them.
		if _, named := e.(*gpuError); !named { //nolint:errorlint // see above
			all[i] = &gpuError{e, gpus}
		}
	}
	return join(all...)
}

// OfGPU returns those of the joined errors of this package that concern a GPU.
func OfGPU(err error, pciAddress string) (of []error) {
	for _, e := range each(err) {
		if named := (*gpuError)(nil); errors.As(e, &named) && slices.Contains(named.gpus, pciAddress) {
			of = append(of, e)
		}
	}
	return of
}

// several are errors of several GPUs.
type several []error

func (s several) Error() string {
	return strings.Join(lists.Map(s, error.Error), "; ")
}

func (s several) Unwrap() []error { return s }

// join joins errors that are not nil, without duplicates. each takes them apart again.
func join(errs ...error) error {
	var all several
	for _, err := range errs {
		for _, e := range each(err) {
			if at := slices.IndexFunc(all, func(known error) bool { return known.Error() == e.Error() }); at >= 0 {
				all[at] = both(all[at], e)
			} else {
				all = append(all, e)
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// both merges two errors of the same text that concern different GPUs.
func both(known, again error) error {
	a, named := known.(*gpuError) //nolint:errorlint // an error around it is another one
	b, other := again.(*gpuError) //nolint:errorlint // the same
	if !named || !other {
		return known
	}
	return &gpuError{a.error, slices.Concat(a.gpus, b.gpus)}
}

// each returns the joined errors.
func each(err error) several {
	if err == nil {
		return nil
	}
	// A wrapped one is a single error.
	if all, ok := err.(several); ok { //nolint:errorlint // see above
		return all
	}
	return several{err}
}

// failed returns the result of a profile that could not be planned or applied.
func failed(err error) v1beta1.Task {
	task := v1beta1.Task{Phase: v1beta1.TaskFailed, Message: oneLine(err)}
	some := func(target error) bool {
		return slices.ContainsFunc(each(err), func(err error) bool { return errors.Is(err, target) })
	}
	known := func(err error) bool {
		return slices.ContainsFunc([]error{gpu.ErrInUse, gpu.ErrNeedsReset, gpu.ErrNotSupported, errForeign, errUnfit}, func(target error) bool { return errors.Is(err, target) })
	}
	switch {
	case slices.ContainsFunc(each(err), func(err error) bool { return !known(err) }):
		task.Reason = names.ReasonHardwareFailed
	case some(errUnfit), some(gpu.ErrNotSupported):
		task.Reason = names.ReasonProfileDoesNotFit
	case some(errForeign):
		task.Reason = names.ReasonForeignPartition
	case some(gpu.ErrInUse):
		// The holder must leave first; the reset is requested again afterwards.
		task.Reason = names.ReasonInUse
	default:
		task.Phase, task.Reason = v1beta1.TaskRebootRequired, names.ReasonRebootRequired
	}
	return task
}

// refusal says why changes must not be made.
func (n *Node) refusal(changes profile.Changes) error {
	errs := lists.Map(changes.Refused, func(r profile.RefusedError) error { return about(unfit(r.Why), r.GPU) })
	if step := memoryStep(changes); step != nil && !n.MemoryModes {
		err := unfit(fmt.Sprintf("%s: this needs a driver reload, which the chart's value amd.memoryPartitions.enabled=true allows", step))
		errs = append(errs, about(err, withMemoryStep(changes)...))
	}
	for _, p := range changes.Foreign {
		how := "; remove it with the tool that created it"
		if command := n.Driver.RemovalCommand(p); command != "" {
			how = "; to remove it, run on the node: " + command
		}
		errs = append(errs, about(fmt.Errorf("partition %s (%s) is in the way and %w%s", p.Name(), p.ID, errForeign, how), p.GPU))
	}
	return join(errs...)
}

func inTheWay(changes profile.Changes) error {
	var errs []error
	for _, c := range changes.GPUs {
		if len(c.InTheWay) > 0 {
			errs = append(errs, about(fmt.Errorf("GPU %s is %w by %s", c.Name(), gpu.ErrInUse, byClaims(c.InTheWay)), c.PCIAddress))
		}
	}
	return join(errs...)
}

// lostInTheWay names the claims that hold devices of GPUs that do not answer, if their
// driver is to be reloaded.
func (n *Node) lostInTheWay(changes profile.Changes) error {
	step := memoryStep(changes)
	if step == nil || n.Lost == nil {
		return nil
	}
	var errs []error
	for _, g := range n.GPUs() {
		if g.Vendor != step.Vendor || !n.Lost(g.PCIAddress) {
			continue
		}
		if holders := holdersOf(g.PCIAddress, n.Claims.Held([]string{g.PCIAddress})); len(holders) > 0 {
			err := fmt.Errorf("%s: GPU %s, which does not answer, is %w by %s", step, g.Name(), gpu.ErrInUse, byClaims(holders))
			errs = append(errs, about(err, append(withMemoryStep(changes), g.PCIAddress)...))
		}
	}
	return join(errs...)
}

func byClaims(holders []profile.Holder) string {
	return strings.Join(lists.Map(holders, func(h profile.Holder) string { return fmt.Sprintf("claim %s (%s)", h.Claim, h.Device) }), ", ")
}

// leftOver describes what remains to be done.
func leftOver(changes profile.Changes) string {
	var texts []string
	for _, c := range changes.GPUs {
		for _, s := range c.Steps {
			texts = append(texts, "remaining step: "+s.String())
		}
	}
	for _, r := range changes.Refused {
		texts = append(texts, r.Why)
	}
	for _, p := range changes.Foreign {
		texts = append(texts, fmt.Sprintf("partition %s has appeared", p.Name()))
	}
	return strings.Join(texts, "; ")
}

// oneLine is an error's text without line breaks, which joined errors have.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
