package overview

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Ask is a share that a person asks for. What its amount does not name is the default.
type Ask struct {
	By gpu.Basis
	// Profile is that of the partition that is shared, empty for the whole GPU.
	Profile string
	gpu.Amount
}

// Terms of a share. Numbers are short enough for an int64.
var (
	ofProfile  = regexp.MustCompile(`^(.+) of (?:a |an |one )?(?:partition )?([0-9a-z.+]+)$`)
	ofMemory   = regexp.MustCompile(`^([0-9]{1,9}(?:\.[0-9]{1,3})?) ?([kmgtp])(i?)b?(?: of memory| memory| share)?$`)
	ofFraction = regexp.MustCompile(`^(?:fraction )?([01](?:\.[0-9]{1,9})?|\.[0-9]{1,9})(?: share)?$`)
	inPercent  = regexp.MustCompile(`^([0-9]{1,3}(?:\.[0-9]{1,6})?) ?%(?: share)?$`)
	inParts    = regexp.MustCompile(`^([0-9]{1,4}) ?/ ?([0-9]{1,4})$`)
	ofCompute  = regexp.MustCompile(`^(?:([0-9]{1,4}) ?% (?:of )?compute|compute ([0-9]{1,4}) ?%?)$`)
	ofClients  = regexp.MustCompile(`^(?:([0-9]{1,4}) clients?|clients ([0-9]{1,4}))$`)
	ofKind     = regexp.MustCompile(`^(?:(?:a|one) )?(?:([0-9a-z.]+) )??(?:(memory|fraction) )?(?:shares?|replicas?)$`)
	onlyNumber = regexp.MustCompile(`^[0-9.]+$`)
)

// maxMemory is more than any GPU has.
const maxMemory = 1 << 50

// ParseAsk reads a share as a person types it: an amount of memory ("8Gi"), a fraction ("0.5",
// "50%", "1/4") or the default ("memory share"), each of a GPU or of a partition ("8Gi of
// 3g.40gb"), with compute and clients ("8Gi, 40% of compute, 4 clients"). share is false if it is
// something else.
func ParseAsk(typed string) (ask Ask, share bool, err error) {
	for term := range strings.SplitSeq(strings.ToLower(typed), ",") {
		term = strings.Join(strings.Fields(term), " ")
		ok, wrong := ask.term(term)
		if !ok {
			if onlyNumber.MatchString(term) {
				return Ask{}, true, fmt.Errorf("%s has no unit: type an amount of memory with one, such as 8Gi, or a fraction of a GPU up to 1, such as 0.5", term)
			}
			return Ask{}, false, nil
		}
		err = errors.Join(err, wrong)
	}
	if ask.By == "" {
		ask.By = gpu.ByFraction
	}
	return ask, true, err
}

// term adds a term. ok is false if it is none of a share.
func (a *Ask) term(t string) (ok bool, err error) {
	if m := ofProfile.FindStringSubmatch(t); m != nil && m[2] != "memory" && m[2] != "compute" {
		t = m[1]
		if m[2] != "gpu" {
			a.Profile = m[2]
		}
	}
	if m := ofMemory.FindStringSubmatch(t); m != nil {
		return true, a.memory(m[1], m[2], m[3])
	}
	if m := ofFraction.FindStringSubmatch(t); m != nil {
		return true, a.fraction(t, m[1], 1)
	}
	if m := inPercent.FindStringSubmatch(t); m != nil {
		return true, a.fraction(t, m[1], 100)
	}
	if m := inParts.FindStringSubmatch(t); m != nil {
		return true, a.fraction(t, m[1], number(m[2]))
	}
	if m := ofCompute.FindStringSubmatch(t); m != nil {
		if a.Compute = number(m[1] + m[2]); a.Compute > gpu.WholeCompute {
			return true, fmt.Errorf("%s is more than 100%% of compute", t)
		}
		return true, nil
	}
	if m := ofClients.FindStringSubmatch(t); m != nil {
		if a.Clients = number(m[1] + m[2]); a.Clients < 1 {
			return true, errors.New("a share has at least 1 client")
		}
		return true, nil
	}
	if m := ofKind.FindStringSubmatch(t); m != nil {
		if m[1] != "" && m[1] != "gpu" {
			a.Profile = m[1]
		}
		by := map[string]gpu.Basis{"memory": gpu.ByMemory, "fraction": gpu.ByFraction}[m[2]]
		if by == "" {
			by = gpu.ByFraction
		}
		return true, a.by(by)
	}
	return false, nil
}

func number(digits string) int64 {
	n, _ := strconv.ParseInt(digits, 10, 64)
	return n
}

// by sets the basis, of which a share has one.
func (a *Ask) by(b gpu.Basis) error {
	if a.By != "" {
		return errors.New("a share has one amount: of memory, or a fraction")
	}
	a.By = b
	return nil
}

// memory rounds up, as the scheduler does.
func (a *Ask) memory(n, unit, binary string) error {
	suffix := strings.ToUpper(unit) + binary
	if suffix == "K" {
		suffix = "k"
	}
	q, err := resource.ParseQuantity(n + suffix)
	if err != nil {
		return fmt.Errorf("%s%s: %w", n, suffix, err)
	}
	switch {
	case q.IsZero():
		return errors.New("a share has at least 1Mi of memory")
	case q.CmpInt64(maxMemory) > 0:
		return fmt.Errorf("%s is more memory than any GPU has", q.String())
	}
	a.Memory = (q.Value() + gpu.MiB - 1) / gpu.MiB * gpu.MiB
	return a.by(gpu.ByMemory)
}

// fraction returns n of a number of parts, in thousandths.
func (a *Ask) fraction(t, n string, parts int64) error {
	q, err := resource.ParseQuantity(n)
	if err != nil {
		return fmt.Errorf("%s: %w", t, err)
	}
	nanos := q.ScaledValue(resource.Nano) // at most 9999 of them, times 10^9
	switch {
	case nanos <= 0 || parts < 1 || nanos > parts*1e9:
		return fmt.Errorf("%s is no fraction above 0 and up to 1", t)
	case nanos%(parts*1e6) != 0:
		return fmt.Errorf("%s is not a multiple of 0.001: ask for %s", t, decimal(max(1, nanos/(parts*1e6))))
	}
	a.Fraction = nanos / (parts * 1e6)
	return a.by(gpu.ByFraction)
}

// decimal returns thousandths: "0.5".
func decimal(thousandths int64) string {
	return strconv.FormatFloat(float64(thousandths)/gpu.WholeFraction, 'f', -1, 64)
}

// Label returns the label of the devices that have such shares.
func (a Ask) Label() string {
	return strings.TrimSpace(a.Profile + " " + a.By.Word() + cluster.ShareSuffix)
}

// amounts returns what the claim asks for, by capacity.
func (a Ask) amounts() cluster.Amounts {
	out := cluster.Amounts{
		names.CapacityMemory: *resource.NewQuantity(a.Memory, resource.BinarySI), names.CapacityFraction: *resource.NewMilliQuantity(a.Fraction, resource.DecimalSI),
		names.CapacityComputePercent: *resource.NewQuantity(a.Compute, resource.DecimalSI), names.CapacityClients: *resource.NewQuantity(a.Clients, resource.DecimalSI),
	}
	maps.DeleteFunc(out, func(_ string, q resource.Quantity) bool { return q.IsZero() })
	return out
}

// String describes the share: "8Gi of memory, 4 clients of a partition 3g.40gb".
func (a Ask) String() string {
	of := "a GPU"
	if a.Profile != "" {
		of = "a partition " + a.Profile
	}
	text := strings.Join(a.amounts().Texts(true), ", ")
	if a.Memory == 0 && a.Fraction == 0 {
		text = strings.TrimSuffix("one replica, by "+a.By.Word()+", "+text, ", ")
	}
	return text + ", of " + of
}

// capacity returns the part of a request with the amounts.
func (a Ask) capacity() string {
	amounts := a.amounts()
	if len(amounts) == 0 {
		return ""
	}
	out := "            capacity:\n              requests:\n"
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		q := amounts[name]
		text := q.String()
		if name == names.CapacityFraction {
			text = decimal(a.Fraction)
		}
		out += fmt.Sprintf("                %s: %q\n", name, text)
	}
	return out
}

// of returns the shares of a GPU that the person asks for, nil if it has none.
func (a Ask) of(g *cluster.GPU) *cluster.Shares {
	i := slices.IndexFunc(g.Shares, func(s cluster.Shares) bool { return s.By == a.By && s.Profile == a.Profile })
	if i < 0 {
		return nil
	}
	return &g.Shares[i]
}

func (a Ask) fits(g *cluster.GPU) int {
	if s := a.of(g); s != nil {
		return s.Room(a.Amount)
	}
	return 0
}

// never says why no GPU could ever give it, empty if one could.
func (a Ask) never(s *Snapshot) string {
	var most gpu.Amount
	seen := false
	for _, n := range s.Nodes {
		for i := range n.GPUs {
			of := a.of(&n.GPUs[i])
			if of == nil {
				continue
			}
			if _, ok := of.With(a.Amount); ok {
				return ""
			}
			seen = true
			most.Memory, most.Compute, most.Clients = max(most.Memory, of.Most.Memory), max(most.Compute, of.Most.Compute), max(most.Clients, of.Most.Clients)
		}
	}
	largest := func(name string, n int64) string {
		format := resource.DecimalSI
		if name == names.CapacityMemory {
			format = resource.BinarySI
		}
		return strings.Join(cluster.Amounts{name: *resource.NewQuantity(n, format)}.Texts(true), "")
	}
	switch {
	case !seen:
		return ""
	case a.Compute > 0 && most.Compute == 0:
		return "No such share has compute. Claims can ask for it where MPS limits shares: of whole NVIDIA GPUs, on nodes where MPS works."
	case a.Memory > most.Memory && a.By == gpu.ByMemory:
		return "No GPU could ever give it: the largest has " + largest(names.CapacityMemory, most.Memory) + " for all its shares."
	case a.Clients > most.Clients:
		return "No GPU could ever give it: a share has at most " + largest(names.CapacityClients, most.Clients) + "."
	}
	return "No GPU could ever give all of it at once."
}
