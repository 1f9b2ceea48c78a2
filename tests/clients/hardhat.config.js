import hardhatEthers from "@nomicfoundation/hardhat-ethers";

export default {
  plugins: [hardhatEthers],
  networks: { nonchalant: { type: "http", url: process.env.RPC_URL, accounts: "remote" } },
};
