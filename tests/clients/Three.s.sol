// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.0;

interface Vm {
    function startBroadcast() external;
    function stopBroadcast() external;
}

contract Kept {
    uint256 public kept;

    function keep(uint256 value) external {
        kept = value;
    }
}

// A contract, and two calls of it: three transactions, which forge sends at once.
contract Three {
    Vm constant vm = Vm(address(uint160(uint256(keccak256("hevm cheat code")))));

    function run() external {
        vm.startBroadcast();
        Kept made = new Kept();
        made.keep(1);
        made.keep(2);
        vm.stopBroadcast();
    }
}
