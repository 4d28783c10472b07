package names

import (
	"strconv"
	"time"
)

// UninstallRequestExpiry is how long a request is valid after its last change, by the clock of
// the plugin that reads it. Whoever makes the request renews it all the time. If that ends
// without Helm ending the plugins (a lost connection, a failed node), the plugins resume work.
const UninstallRequestExpiry = 3 * time.Minute

// UninstallRequest asks the plugins to withdraw the GPUs of their nodes, because Tranche is
// being uninstalled. It is the data of a ConfigMap. The zero value is no request.
type UninstallRequest struct {
	// Active is false after the request was taken back.
	Active bool
	// Force means that pods may still hold GPUs.
	Force bool
	// Beat changes each time the request is renewed.
	Beat int
}

const (
	keyPhase = "phase"
	keyForce = "force"
	keyBeat  = "beat"

	phaseActive    = "uninstalling"
	phaseCancelled = "cancelled"
)

// ReadUninstallRequest reads the data of the ConfigMap. Nil is no request.
func ReadUninstallRequest(data map[string]string) UninstallRequest {
	beat, _ := strconv.Atoi(data[keyBeat])
	return UninstallRequest{
		Active: data[keyPhase] == phaseActive,
		Force:  data[keyForce] == strconv.FormatBool(true),
		Beat:   beat,
	}
}

// Data returns the data of the ConfigMap.
func (r UninstallRequest) Data() map[string]string {
	phase := phaseCancelled
	if r.Active {
		phase = phaseActive
	}
	return map[string]string{
		keyPhase: phase,
		keyForce: strconv.FormatBool(r.Force),
		keyBeat:  strconv.Itoa(r.Beat),
		"about": "Written when Tranche is uninstalled, read by Tranche's kubelet plugins. While the phase is uninstalling and beat changes, " +
			"they prepare no claims and publish no GPUs.",
	}
}
