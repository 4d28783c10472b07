package fit

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Asks says what a pod asks for that is not allocated.
func (m *Model) Asks(ctx context.Context, d *Demand) (out []Ask) {
	d.requests(func(claim *resourceapi.ResourceClaim, r resourceapi.DeviceRequest) {
		a := Ask{Claim: claim.Name, Request: r.Name}
		var texts []string
		for _, ch := range Choices(r) {
			texts = append(texts, m.ask(ctx, d, claim, ch))
			a.Class = ch.Class
		}
		a.Text = strings.Join(texts, ", or else ")
		out = append(out, a)
	})
	return out
}

// ask says what a choice asks for, with its class.
func (m *Model) ask(ctx context.Context, d *Demand, claim *resourceapi.ResourceClaim, ch Choice) string {
	label, _ := m.label(ctx, ch)
	what := label
	if label == "" {
		what = "device of class " + ch.Class
	}
	text := fmt.Sprintf("%d × %s", ch.Count, what)
	if ch.All {
		text = fmt.Sprintf("every %s of the node", what)
	}
	if amounts := ch.AmountText(); amounts != "" {
		text += " (" + amounts + ")"
	}
	if ch.AdminAccess {
		text += ", to look at only (adminAccess)"
	}
	switch {
	case claim.Name == "": // asked for by resource name
		text += " (" + d.Resource(ch.Class) + ", class " + ch.Class + ")"
	case label != "":
		text += " (class " + ch.Class + ")"
	}
	return text
}

// profileInText finds the profile in the selector of a class, for profiles that no node has:
// "1g.10gb", or "tpx". shareInText finds the unit of shares, for shares that no node has.
var (
	profileInText = regexp.MustCompile(`"(\d+g\.\d+gb[^"]*|[a-z]px)"`)
	shareInText   = regexp.MustCompile(`\?share\.orValue\(""\) == "(\w+)"`)
)

// label is the label of the devices that a choice wants, if they all have one, otherwise empty. share: they
// are shares.
func (m *Model) label(ctx context.Context, ch Choice) (label string, share bool) {
	var found []string
	for _, p := range m.Pools {
		for _, d := range p.Devices {
			if ok, err := m.wanted(ctx, d, ch); err == nil && ok && p.GPU != "" && !slices.Contains(found, d.Label) {
				found = append(found, d.Label)
				share = d.Type == gpu.TypeShare
			}
		}
	}
	if len(found) == 1 {
		return found[0], share
	}
	class := m.DeviceClasses[ch.Class]
	if len(found) > 1 || class == nil {
		return "", false
	}
	for _, s := range class.Spec.Selectors {
		if s.CEL == nil {
			continue
		}
		if found := profileInText.FindStringSubmatch(s.CEL.Expression); found != nil {
			return found[1], false
		}
		if found := shareInText.FindStringSubmatch(s.CEL.Expression); found != nil {
			return found[1] + cluster.ShareSuffix, true
		}
	}
	return "", false
}
