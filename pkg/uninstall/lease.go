package uninstall

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// leaseName is that of the lease by which one of the controller's pods leads.
const leaseName = "tranche-controller"

// deleteLease deletes the lease of the controller, which has ended, or was there once.
// Nobody else does: it was made by a pod, not by the chart.
func (c *Config) deleteLease(ctx context.Context) error {
	err := c.Client.CoordinationV1().Leases(c.Namespace).Delete(ctx, leaseName, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Lease %s/%s of the controller: %w", c.Namespace, leaseName, err)
	}
	return nil
}
