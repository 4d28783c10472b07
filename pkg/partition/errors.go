package partition

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

var (
	// errForeign is that partitions are in the way that somebody else made.
	errForeign = errors.New("was not made by Tranche")
	// errUnfit is that GPUs cannot be what is wanted.
	errUnfit = errors.New("the profile does not fit")
)

// unfit is an error by which errUnfit is found and that says only what is wrong.
type unfit string

func (u unfit) Error() string { return string(u) }

func (u unfit) Is(target error) bool { return target == errUnfit }

// gpuError is an error of GPUs, by PCI address. What it says names them where that helps.
type gpuError struct {
	error
	gpus []string
}

func (e *gpuError) Unwrap() error { return e.error }

// about has the errors that were joined into one, and that name no GPU yet, name these.
func about(err error, gpus ...string) error {
	all := slices.Clone(each(err))
	for i, e := range all {
		// One that was given a text of its own since is about all of them.
		if _, named := e.(*gpuError); !named { //nolint:errorlint // see above
			all[i] = &gpuError{e, gpus}
		}
	}
	return join(all...)
}

// OfGPU lists what an error of this package says of a GPU.
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
	texts := make([]string, len(s))
	for i, err := range s {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

func (s several) Unwrap() []error { return s }

// join makes one error of those that are not nil, each of which can still be told from
// the others. What is said twice is told once.
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

// both is an error that was told of some GPUs and is told of others, too.
func both(known, again error) error {
	a, named := known.(*gpuError) //nolint:errorlint // an error around it is another one
	b, other := again.(*gpuError) //nolint:errorlint // the same
	if !named || !other {
		return known
	}
	return &gpuError{a.error, slices.Concat(a.gpus, b.gpus)}
}

// each lists the errors that were joined into one.
func each(err error) several {
	if err == nil {
		return nil
	}
	// One that was given a text of its own since is one.
	if all, ok := err.(several); ok { //nolint:errorlint // see above
		return all
	}
	return several{err}
}

// failed is the answer to a wish that could not be applied, or not be planned.
func failed(err error) v1alpha1.Task {
	task := v1alpha1.Task{Phase: v1alpha1.TaskFailed, Message: oneLine(err)}
	some := func(target error) bool {
		return slices.ContainsFunc(each(err), func(err error) bool { return errors.Is(err, target) })
	}
	known := func(err error) bool {
		return slices.ContainsFunc([]error{gpu.ErrInUse, gpu.ErrNeedsReset, gpu.ErrNotSupported, errForeign, errUnfit}, func(target error) bool { return errors.Is(err, target) })
	}
	switch {
	case slices.ContainsFunc(each(err), func(err error) bool { return !known(err) }):
		task.Reason = v1alpha1.ReasonHardwareFailed
	case some(errUnfit), some(gpu.ErrNotSupported):
		task.Reason = v1alpha1.ReasonProfileDoesNotFit
	case some(errForeign):
		task.Reason = v1alpha1.ReasonForeignPartition
	case some(gpu.ErrInUse):
		// Who is in the way leaves first; then a reset is asked for again.
		task.Reason = v1alpha1.ReasonInUse
	default:
		task.Phase, task.Reason = v1alpha1.TaskRebootRequired, v1alpha1.ReasonNeedsReset
	}
	return task
}

// refusal says why a plan must not be carried out.
func (n *Node) refusal(plan Plan) error {
	var errs []error
	for _, r := range plan.Refused {
		errs = append(errs, about(unfit(r.Why), r.GPU))
	}
	if step := memoryStep(plan); step != nil && !n.MemoryModes {
		err := unfit(fmt.Sprintf("%s: the driver would have to be loaded anew for it, which amd.memoryModes=true in the chart's values lets the plugin do", step))
		errs = append(errs, about(err, plan.withMemoryStep()...))
	}
	for _, p := range plan.Foreign {
		how := "; whoever made it must remove it"
		if n.RemovalCommand != nil {
			if command := n.RemovalCommand(p); command != "" {
				how = "; to free it, run on the node: " + command
			}
		}
		errs = append(errs, about(fmt.Errorf("partition %s (%s) is in the way and %w%s", p.Name(), p.ID, errForeign, how), p.GPU))
	}
	return join(errs...)
}

// inTheWay names those who hold what has to change.
func inTheWay(plan Plan) error {
	var errs []error
	for _, c := range plan.GPUs {
		if len(c.InTheWay) > 0 {
			errs = append(errs, about(fmt.Errorf("GPU %s is %w by %s", c.Name(), gpu.ErrInUse, byClaims(c.InTheWay)), c.PCIAddress))
		}
	}
	return join(errs...)
}

// lostInTheWay names those who hold something of GPUs that do not answer, and that a
// load of their driver would take down with the others.
func (n *Node) lostInTheWay(plan Plan) error {
	step := memoryStep(plan)
	if step == nil || n.Lost == nil {
		return nil
	}
	var errs []error
	for _, c := range n.GPUs() {
		if c.Vendor != step.Vendor || !n.Lost(c.PCIAddress) {
			continue
		}
		if holders := holdersOf(c.PCIAddress, n.Claims.Held([]string{c.PCIAddress})); len(holders) > 0 {
			err := fmt.Errorf("%s: GPU %s, which does not answer, is %w by %s", step, c.Name(), gpu.ErrInUse, byClaims(holders))
			errs = append(errs, about(err, append(plan.withMemoryStep(), c.PCIAddress)...))
		}
	}
	return join(errs...)
}

func byClaims(holders []Holder) string {
	texts := make([]string, len(holders))
	for i, h := range holders {
		texts[i] = fmt.Sprintf("claim %s (%s)", h.Claim, h.Device)
	}
	return strings.Join(texts, ", ")
}

// leftOver says what is still to be done.
func leftOver(plan Plan) string {
	var texts []string
	for _, c := range plan.GPUs {
		for _, s := range c.Steps {
			texts = append(texts, "it is still to do: "+s.String())
		}
		for _, h := range c.InTheWay {
			texts = append(texts, fmt.Sprintf("claim %s holds %s", h.Claim, h.Device))
		}
	}
	for _, r := range plan.Refused {
		texts = append(texts, r.Why)
	}
	for _, p := range plan.Foreign {
		texts = append(texts, fmt.Sprintf("partition %s has appeared", p.Name()))
	}
	return strings.Join(texts, "; ")
}

// oneLine is an error's text without line breaks, which joined errors have.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
