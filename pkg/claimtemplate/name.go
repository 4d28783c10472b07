package claimtemplate

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

const (
	// Prefix is the prefix of all template names.
	Prefix = "tranche-"
	// MostMemory is the largest amount of memory in MiB, more than any GPU has.
	MostMemory = 1 << 20
	// MostDevices is the maximum number of GPUs of a template, more than a node has.
	MostDevices = 16

	// longestName is the maximum length of an object's name.
	longestName = 253
	longestTerm = 63
)

// Request is what the name of a template encodes.
type Request struct {
	Vendor gpu.Vendor
	// Fraction is in thousandths of a GPU, Memory in MiB. Both are 0 for a whole GPU.
	Fraction, Memory int64
	// Limit is the memory limit of a share by memory in MiB. 0 means the amount.
	Limit int64
	// Compute limits a share to a percentage of the multiprocessors. 0 means no limit.
	Compute int64
	// Count is the number of GPUs.
	Count int64
	// MPS restricts the request to GPUs whose sharing strategy is MPS.
	MPS bool
	// Terms select GPUs. They have the order of the name.
	Terms []Term
}

// Term selects GPUs by their product name or UUID. A GPU must match one term of each kind, and all terms
// that exclude GPUs.
type Term struct {
	Kind TermKind
	// Value is in lower case, with dashes instead of spaces and underscores.
	Value string
}

// TermKind is what a term compares.
type TermKind string

// The kinds of terms. A value of Type or NotType is a part of the product name.
const (
	Type    TermKind = "type"
	NotType TermKind = "nottype"
	UUID    TermKind = "uuid"
	NotUUID TermKind = "notuuid"
)

var (
	amount = regexp.MustCompile(`^tranche-(amd-)?(?:gpu|fraction-([0-9]+)|memory-([0-9]+)mi(?:-limit-([0-9]+)mi)?)(?:-compute-([0-9]+))?(?:-x([0-9]+))?(-mps)?$`)
	value  = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
)

// Parse parses the name of a template. Each Request has exactly one name.
func Parse(name string) (*Request, error) {
	if len(name) > longestName {
		return nil, fmt.Errorf("template %.40s… has a name of %d characters, and the limit is %d", name, len(name), longestName)
	}
	parts := strings.Split(name, ".")
	found := amount.FindStringSubmatch(parts[0])
	if found == nil {
		return nil, fmt.Errorf("template %s: the name has no amount, as in tranche-fraction-500 or tranche-memory-2000mi", name)
	}
	r := &Request{Vendor: gpu.NVIDIA, Count: 1, MPS: found[7] != ""}
	if found[1] != "" {
		r.Vendor = gpu.AMD
	}
	for _, number := range []struct {
		text string
		to   *int64
	}{{found[2], &r.Fraction}, {found[3], &r.Memory}, {found[4], &r.Limit}, {found[5], &r.Compute}, {found[6], &r.Count}} {
		if number.text == "" {
			continue
		}
		n, err := strconv.ParseInt(number.text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("template %s: number %s is too large", name, number.text)
		}
		*number.to = n
	}
	for _, part := range parts[1:] {
		kind, text, _ := strings.Cut(part, "-")
		r.Terms = append(r.Terms, Term{TermKind(kind), text})
	}
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("template %s: %w", name, err)
	}
	if canonical := r.String(); canonical != name {
		return nil, fmt.Errorf("template %s: the name of this amount is %s", name, canonical)
	}
	return r, nil
}

func (r *Request) check() error {
	share := r.Fraction != 0 || r.Memory != 0
	for _, n := range []struct {
		what  string
		value int64
		most  int64
	}{{"fraction", r.Fraction, gpu.WholeFraction}, {"memory", r.Memory, MostMemory}, {"limit", r.Limit, MostMemory}, {"compute", r.Compute, gpu.WholeCompute}} {
		if n.value > n.most {
			return fmt.Errorf("%s is %d, and it must be from 1 to %d", n.what, n.value, n.most)
		}
	}
	switch {
	case r.Count < 1 || r.Count > MostDevices:
		return fmt.Errorf("the number of GPUs is %d, and it must be from 1 to %d", r.Count, MostDevices)
	case r.Limit != 0 && r.Limit <= r.Memory:
		return errors.New("the memory limit must be above the amount")
	case r.Compute != 0 && (!share || r.Vendor != gpu.NVIDIA):
		return errors.New("compute can be limited only for shares of NVIDIA GPUs")
	case r.MPS && (!share || r.Vendor != gpu.NVIDIA || r.Count > 1):
		return errors.New("MPS serves only a share of one NVIDIA GPU")
	}
	for _, t := range r.Terms {
		if !slices.Contains([]TermKind{Type, NotType, UUID, NotUUID}, t.Kind) {
			return fmt.Errorf("unknown term %q: use %s, %s, %s or %s", t.Kind, Type, NotType, UUID, NotUUID)
		}
		if len(t.Value) > longestTerm || !value.MatchString(t.Value) {
			return fmt.Errorf("%q is neither part of a product name nor a UUID", t.Value)
		}
	}
	return nil
}

// String returns the name of the template.
func (r *Request) String() string {
	var b strings.Builder
	b.WriteString(Prefix)
	if r.Vendor == gpu.AMD {
		b.WriteString("amd-")
	}
	switch {
	case r.Fraction != 0:
		fmt.Fprintf(&b, "fraction-%d", r.Fraction)
	case r.Memory != 0:
		fmt.Fprintf(&b, "memory-%dmi", r.Memory)
		if r.Limit != 0 {
			fmt.Fprintf(&b, "-limit-%dmi", r.Limit)
		}
	default:
		b.WriteString("gpu")
	}
	if r.Compute != 0 {
		fmt.Fprintf(&b, "-compute-%d", r.Compute)
	}
	if r.Count > 1 {
		fmt.Fprintf(&b, "-x%d", r.Count)
	}
	if r.MPS {
		b.WriteString("-mps")
	}
	for _, t := range r.Terms {
		fmt.Fprintf(&b, ".%s-%s", t.Kind, t.Value)
	}
	return b.String()
}
