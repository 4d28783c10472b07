package demand

import (
	"fmt"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/lists"
)

// Ask is a request of a claim.
type Ask struct {
	Claim   string `json:"claimName,omitempty"`
	Request string `json:"requestName"`
	Class   string `json:"deviceClassName,omitempty"`
	// Text is the request in words: "2 × gpu-mig-1g-10gb.tranche.dev".
	Text string `json:"message"`
}

// Asks returns the pod's unallocated requests.
func (d *Demand) Asks() (out []Ask) {
	d.EachRequest(func(claim *resourceapi.ResourceClaim, r resourceapi.DeviceRequest) {
		a := Ask{Claim: claim.Name, Request: r.Name}
		var texts []string
		for _, ch := range Choices(r) {
			text := ch.text()
			if claim.Name == "" { // requested as an extended resource
				text += " (" + d.Resource(ch.Class) + ")"
			}
			texts = append(texts, text)
			a.Class = ch.Class
		}
		a.Text = strings.Join(texts, ", or else ")
		out = append(out, a)
	})
	return out
}

// Asked returns the requests as one phrase.
func Asked(asks []Ask) string {
	return strings.Join(lists.Map(asks, func(a Ask) string { return a.Text }), "; ")
}

func (ch Choice) text() string {
	text := fmt.Sprintf("%d × %s", ch.Count, ch.Class)
	if ch.All {
		text = "all " + ch.Class + " of the node"
	}
	if amounts := ch.AmountText(); amounts != "" {
		text += " (" + amounts + ")"
	}
	if len(ch.Selectors) > 0 {
		text += " with selectors"
	}
	if ch.AdminAccess {
		text += ", for monitoring only (adminAccess)"
	}
	return text
}
