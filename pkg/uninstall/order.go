package uninstall

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Expiry is how long an order is good after its last change, by the clock of the
// plugin that reads it. Who gives the order changes it all the time; if that
// ends without Helm ending the plugins (a lost connection, a node that fails),
// they go back to work by themselves.
const Expiry = 3 * time.Minute

// Order tells the plugins that Tranche is being uninstalled. Its zero value is
// no order.
type Order struct {
	// Active is false when the order was taken back.
	Active bool
	// Force says that pods may still hold GPUs.
	Force bool
	// Beat changes while somebody stands behind the order.
	Beat int
}

const (
	keyPhase = "phase"
	keyForce = "force"
	keyBeat  = "beat"

	phaseActive    = "uninstalling"
	phaseCancelled = "cancelled"
)

// ReadOrder reads an order; a ConfigMap that is not there is none.
func ReadOrder(c *corev1.ConfigMap) Order {
	if c == nil {
		return Order{}
	}
	beat, _ := strconv.Atoi(c.Data[keyBeat])
	return Order{
		Active: c.Data[keyPhase] == phaseActive,
		Force:  c.Data[keyForce] == strconv.FormatBool(true),
		Beat:   beat,
	}
}

func (o Order) data() map[string]string {
	phase := phaseCancelled
	if o.Active {
		phase = phaseActive
	}
	return map[string]string{
		keyPhase: phase,
		keyForce: strconv.FormatBool(o.Force),
		keyBeat:  strconv.Itoa(o.Beat),
		"about": "Written when Tranche is uninstalled, read by Tranche's kubelet plugins. While the phase is uninstalling and beat changes, " +
			"they prepare no claims and publish no GPUs.",
	}
}
