//! The guide's "VMs and bare metal", walked as it is printed: the control plane and two machines, each a network namespace.

use crate::{
    network::{Interception, Network},
    walk::{Host, walk},
};

#[test]
fn the_guides_machines_work_as_they_are_printed() {
    let Some(network) = Network::start(&[Interception::None; 3]) else { return };
    let machines: [_; 3] = network.machines();
    let [control, one, two] = ["control", "vm1", "vm2"];
    let hosts = [Host::new(control, &machines[0]), Host::new(one, &machines[1]), Host::new(two, &machines[2])];
    let [control, vms @ ..] = &hosts;
    // Copies of files of the control plane's machine.
    let folder = control.folder().display().to_string();
    vms.iter().for_each(|vm| vm.put("scp", &format!("exec cp \"${{@//10.0.0.2:/{folder}/}}\"")));
    let compared = walk("virtual_machines.md", &hosts.iter().collect::<Vec<_>>(), &[]);
    assert!(compared >= 15, "{compared} outputs");
}
